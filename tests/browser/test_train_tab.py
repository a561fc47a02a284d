"""The Train tab in a browser: a tiny model really trains, curves appear, Stop works, heads are used."""

from __future__ import annotations

import json
from dataclasses import replace
from zipfile import ZipFile

import pytest
from places import drawn, says, turn_to
from training_corpus import SENTENCES

from medusa_core.config import LoadConfig
from ui.runs.session import Session
from ui.tabs.train import run as train_run

pytestmark = pytest.mark.browser

PROMPTS = [{"kind": "Story", "prompts": [{"label": "a", "text": "The cat saw a"},
                                         {"label": "b", "text": "The owl saw a"}]}]  # fmt: skip
TEXT = "\n<|endoftext|>\n".join(SENTENCES * 15)


@pytest.fixture(scope="module")
def session(trained_base, tmp_path_factory):
    assets = tmp_path_factory.mktemp("assets")
    (assets / "prompts.json").write_text(json.dumps(PROMPTS), "utf-8")
    return Session(LoadConfig(str(trained_base), dtype="float32", device="cpu"), assets)


@pytest.fixture(scope="module")
def address(session, serve_session):
    return serve_session(session)


@pytest.fixture(autouse=True)
def short_measuring(monkeypatch):
    monkeypatch.setattr(train_run, "EFFORT", replace(train_run.EFFORT, rounds=1, sizes=(1, 8)))


@pytest.fixture
def train_tab(warm_page):
    """One page for all tests, each of which brings its own text and begins its own run."""
    page = warm_page
    turn_to(page, "Train")
    page.wait_for_selector("#train-top5 .main-svg")
    return page


def unfold_settings(page) -> None:
    if not page.locator("#train-steps").is_visible():
        page.locator("#train-settings button").first.click()


def paste(page, text: str, steps: int) -> None:
    unfold_settings(page)
    page.get_by_label("pasted text").check()
    page.locator("#train-text textarea").fill(text)
    fill_number(page, "#train-steps input", str(steps))
    fill_number(page, "#train-rate input", "0.01")


def fill_number(page, field: str, value: str) -> None:
    """Fill until the page keeps it: a field that gradio is still mounting takes its first value again."""
    for _ in range(5):
        page.fill(field, value)
        page.press(field, "Tab")
        drawn(page)
        if page.input_value(field) == value:
            return
    raise AssertionError(f"{field} does not keep {value}")


def wait_for_heads(page, tab: str) -> None:
    page.wait_for_function(
        "id => [...document.querySelectorAll(id)].some(i => i.value.startsWith('yours: Medusa-1'))",
        arg=f"#{tab}-settings input",
    )


def curves_in(page, chart: str) -> int:
    return page.locator(f"{chart} .js-plotly-plot .scatterlayer .trace").count()


def test_a_run_trains_draws_and_its_heads_are_downloaded_and_used(train_tab, session):
    page = train_tab
    assert page.locator("#train-use-decode").is_disabled()
    assert page.locator("#train-download").is_disabled()
    paste(page, TEXT, 60)
    page.click("#train-run")
    says(page, "#train-status", "ready to be used")
    page.wait_for_function(
        "document.querySelectorAll('#train-top1 .js-plotly-plot .scatterlayer .trace').length === 5"
    )
    assert curves_in(page, "#train-loss") == curves_in(page, "#train-top5") == 5
    fresh, trained = page.locator("#train-gain tbody tr").first.locator("td").all_inner_texts()
    assert float(trained) > float(fresh) + 0.3
    with page.expect_download() as coming:
        page.click("#train-download")
    assert coming.value.suggested_filename == "medusa-heads.zip"
    says(page, "#train-status", "medusa-heads.zip, 0.")
    with ZipFile(coming.value.path()) as packed:  # test_train_run.py uses what is in it.
        assert packed.testzip() is None
    page.mouse.wheel(0, 600)
    page.wait_for_function("scrollY > 0")
    page.click("#train-use-decode")
    says(page, ".toast-body", "now chosen in the menu “Heads”")
    page.wait_for_function("scrollY === 0")
    page.locator("#decode-prompt textarea").fill("The dog saw a")
    wait_for_heads(page, "decode")
    page.click("#decode-run")
    says(page, "#decode-badge", "your heads “Medusa-1")
    says(page, "#decode-status", "tokens in")
    assert not session.busy


def test_the_settings_follow_the_recipe(train_tab):
    page = train_tab
    unfold_settings(page)
    weight = page.get_by_label("λ0")
    assert weight.count() == 0 or not weight.is_visible()
    page.get_by_label("Direct: both, without care").check()
    weight.wait_for(state="visible")
    assert weight.input_value() == "1"
    says(page, "#train-recipe-note", "as the paper warns")
