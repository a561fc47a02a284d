"""Compare as shipped: the prompt of Watch, a recorded race, two chosen lanes, and this visit's races."""

from __future__ import annotations

import pytest
from places import turn_to

pytestmark = pytest.mark.browser

FRESH = ".race-player:not(.recorded)"
PHONE = {"width": 390, "height": 844}
SECONDS = """() => {
  const span = document.querySelector(".race-clock").textContent.split("/")[1];
  return parseFloat(span) / Number(document.querySelector(".race-speed").value);
}"""
FOREIGN = '[{"kind": "other"}, 7, null]'  # entries that are no races are left out
PROMPT = "a fox <b>went</b> home"


PROMPT_BOX = "#race-prompt textarea"


@pytest.fixture
def page(shipped_address, open_page):
    page = open_page(shipped_address, 1440, 900)
    turn_to(page, "Compare")
    page.wait_for_selector(".race-lane")
    return page


def to_recorded_race(page) -> None:
    """The last of the list; it is on show already where it continues the prompt of Watch."""
    if not page.locator(".race-player.recorded").count():
        page.locator(".race-entry").last.click()
    page.wait_for_selector(".race-player.recorded")


def agreed(page) -> str:
    """The prompt in the box, once the lanes continue the same."""
    page.wait_for_function(
        "() => { const flat = (text) => text.replace(/\\s+/g, ' ').trim();"
        " const box = flat(document.querySelector('#race-prompt textarea').value);"
        " const lanes = [...document.querySelectorAll('.race-prompt')];"
        " return box && lanes.every((one) => flat(one.textContent) === box); }"
    )
    return page.locator(PROMPT_BOX).input_value()


def test_lanes_in_view_are_about_to_start_with_the_prompt_of_watch(page):
    assert page.locator(".race-lanes").evaluate("(lanes) => lanes.getBoundingClientRect().bottom") <= 900
    assert page.locator(".race-lane.finished").count() == 0
    turn_to(page, "Watch")
    assert agreed(page) == page.locator("#decode-prompt textarea").input_value()
    page.locator("#decode-prompt textarea").fill(PROMPT)
    turn_to(page, "Compare")
    page.wait_for_selector(".race-ready")
    assert agreed(page) == PROMPT
    to_recorded_race(page)
    assert agreed(page) not in ("", PROMPT)


def choose(page, name: str, entry: str) -> None:
    page.locator(f"#race-second .setting-second-{name} input").click()
    page.get_by_role("option", name=entry, exact=True).click()


def compare(page, prompt: str) -> None:
    page.locator("#race-prompt textarea").fill(prompt)
    page.click("#race-run")


def entries(page) -> list[str]:
    return page.locator(".race-entry").all_inner_texts()


@pytest.mark.slow
def test_a_recorded_race_is_shown_then_two_chosen_lanes_and_both_again(page, shipped_address, open_page):
    to_recorded_race(page)
    words = page.locator(".race-recorded").inner_text()
    assert words.startswith("Recorded, not measured here: embedded")
    assert "thread" in words
    assert page.locator(".race-gallery").is_hidden()
    assert page.evaluate(SECONDS) >= 3  # it can be followed
    assert page.locator(".race-speed option").first.inner_text() == "1/128×"

    page.locator("#race-settings button").first.click()
    tokens = page.locator("#race-settings input[type=number][aria-label*='New tokens']").first
    tokens.fill("12")
    tokens.press("Tab")
    page.locator("#race-second button").first.click()
    page.wait_for_selector(
        "#race-second .setting-second-tree[data-note*='counts for nothing']"
    )  # of plain decoding
    choose(page, "method", "as the first lane")
    page.wait_for_selector("#race-second .setting-second-tree:not([data-note*='nothing'])")
    choose(page, "method", "N-grams of the text")
    compare(page, PROMPT)
    page.wait_for_selector(FRESH)

    names = page.locator(".race-lane h3").all_inner_texts()
    assert names == ["Medusa", "N-grams of the text", "Plain decoding"]
    assert page.locator(".race-table tbody tr").count() == 3
    assert "speed of the first lane ÷ the second’s" in page.locator(".race-result").inner_text()
    shown = entries(page)
    assert len(shown) == 2
    assert "Medusa ÷ N-grams of the text" in shown[0]
    assert PROMPT in shown[0]
    page.locator(".race-entry").nth(1).click()
    page.wait_for_selector(".race-player.recorded")
    page.locator(".race-entry").first.click()
    page.wait_for_selector(FRESH)

    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.locator(".race-speedbar").first.bounding_box()["width"] > 250
    assert page.locator(".race-ticks").first.bounding_box()["width"] > 250
    small = "(all) => Math.min(...all.map((part) => parseFloat(getComputedStyle(part).fontSize)))"
    assert page.locator(".race-table b, .race-table small, .race-table th").evaluate_all(small) >= 12

    open_page.reload(page)
    turn_to(page, "Side by side")
    page.wait_for_selector(".race-entry")
    assert entries(page)[0] == shown[0]  # a reload of this tab keeps it

    other = open_page(shipped_address)
    other.evaluate(f"window.sessionStorage.setItem('medusa-races-1', {FOREIGN!r})")
    open_page.reload(other)
    turn_to(other, "Side by side")
    to_recorded_race(other)
    assert other.locator(".race-gallery").is_hidden()
