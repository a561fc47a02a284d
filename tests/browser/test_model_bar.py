"""The model's bar in a browser: another model, giving a load up, errors, and what a public page offers."""

from __future__ import annotations

import places
import pytest
from other_model import other_model
from places import says

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def other(hostile_folder, tmp_path_factory):
    return other_model(hostile_folder, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def own_name(hostile_folder):
    return hostile_folder.name


@pytest.fixture
def new_page(address, open_page):
    """In a browser that remembers nothing."""
    return ready(open_page(address))


def ready(page):
    says(page, "#model-line", "Medusa heads")
    return page


def unfold(page):
    if not page.locator("#model-load").is_visible():
        page.locator("#model-picker button").first.click()
    page.wait_for_selector("#model-load", state="visible")
    return page


def options(page) -> list[str]:
    page.locator("#model-menu input").click()
    found = [option.inner_text().strip("✓\n ") for option in page.locator("#model-menu [role=option]").all()]
    page.locator("#model-line").click()  # folds the list again
    return found


def pick(page, label: str) -> None:
    page.locator("#model-menu input").click()
    page.locator("#model-menu [role=option]").filter(has_text=label).first.click()


def menu_shows(page, label: str) -> None:
    page.wait_for_function("label => document.querySelector('#model-menu input').value === label", arg=label)


def name(page, folder: str, heads: str = "") -> None:
    pick(page, "another one")
    page.locator("#model-name").locator("input, textarea").fill(folder)
    page.locator("#model-heads").locator("input, textarea").fill(heads)


def run(page) -> None:
    places.set_tokens(page, 16)
    page.click("#decode-run")
    says(page, "#decode-status", "tokens in")


def use(page, folder):
    name(unfold(page), "")
    page.click("#model-check")
    says(page, "#model-status", "There is no name: write a folder or a hub name")
    name(page, str(folder))
    page.click("#model-check")
    says(page, "#model-status", "other needs about")
    page.click("#model-load")
    says(page, "#model-status", "Now using other.")
    says(page, "#model-line", "other · 2 Medusa heads")
    menu_shows(page, str(folder))


def test_a_folder_is_loaded_and_used(new_page, other):
    page = new_page
    assert not page.locator("#model-load").is_visible()
    use(page, other)
    run(page)
    assert "other · float32 · cpu" in page.locator("#decode-view").inner_text()
    places.turn_to(page, "Trees")
    says(page, "#trees-words", "Nobody has counted how often these heads are right")


@pytest.mark.slow
def test_a_folder_is_remembered_by_this_browser_alone(address, new_page, open_page, other, own_name):
    page = new_page
    use(page, other)
    name(page, str(other), "none")
    page.click("#model-load")
    says(page, "#model-line", "other · no Medusa heads")
    menu_shows(page, f"{other} + no heads")
    open_page.reload(page)
    says(page, "#model-line", own_name)
    assert {str(other), f"{other} + no heads"} < set(options(unfold(page)))
    loaded_with_two_clicks(page, own_name)
    stranger = ready(open_page(address, alone=True))
    assert own_name in stranger.locator("#model-line").inner_text()
    assert str(other) not in unfold(stranger).content()


def loaded_with_two_clicks(page, own_name) -> None:
    """Of a model that the browser remembers, and back to the app's own."""
    pick(page, "no heads")
    page.click("#model-load")
    says(page, "#model-line", "other · no Medusa heads")
    run(page)
    says(page, "#decode-badge", "decodes plainly, one token a step")
    pick(page, own_name)
    page.click("#model-load")
    page.wait_for_function("document.querySelector('#decode-badge').innerText.trim() === ''")
    menu_shows(page, own_name)
