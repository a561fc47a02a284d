"""The whole app on a phone: every tab of the shipped page, light and dark, without sideways scrolling."""

from __future__ import annotations

import places
import pytest
from places import says

pytestmark = [pytest.mark.browser, pytest.mark.slow]  # each tab has a phone's width in its own tests

PHONE = {"width": 390, "height": 844}
EXPERIMENT = """words => ['#experiment-text', '#experiment-details'].some(
    where => document.querySelector(where)?.innerText.includes(words))"""
NODES = "document.querySelectorAll('#trees-drawing [data-node]').length"


def fits(page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def turn_to(page, tab: str, sign: str) -> None:
    places.turn_to(page, tab)
    page.wait_for_selector(sign)


def set_number(page, field: str, value: int) -> None:
    page.locator(field).first.fill(str(value))
    page.locator(field).first.press("Tab")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(shipped_address, open_page, scheme):
    page = open_page(shipped_address, **PHONE, color_scheme=scheme)
    says(page, "#model-line", "Medusa heads")
    page.wait_for_selector("#decode-view .mdv-node")
    assert fits(page)
    turn_to(page, "Side by side", "#race-run")
    assert fits(page)
    turn_to(page, "Train", "#train-top5 .main-svg")
    assert fits(page)
    turn_to(page, "Experiments", "#experiment-choice")
    for name, title in (("table2", "Ways to train"), ("figure4", "Sparse against dense trees")):
        page.locator("#experiment-choice input").click()
        page.get_by_role("option", name=title).click()
        page.wait_for_function(EXPERIMENT, arg=f"reproduce {name}")
        assert fits(page)
    page.wait_for_selector("#experiment-charts .js-plotly-plot .main-svg")
    assert fits(page)
    turn_to(page, "Hardware", "#hardware-roofline .main-svg")
    assert fits(page)
    turn_to(page, "Trees", "#trees-heatmap .main-svg")
    set_number(page, "#trees-nodes input[type=number]", 40)
    page.wait_for_function(f"{NODES} === 40")
    assert fits(page)
    assert page.locator("#trees-drawing").bounding_box()["width"] > 300  # it scrolls in a frame of its own


def test_a_phone_shows_what_runs_and_long_words_without_sideways_scrolling(private_address, open_page):
    page = open_page(private_address, **PHONE, alone=True)
    says(page, "#model-line", "Medusa heads")
    page.locator("#model-picker button").first.click()
    page.locator("#model-menu input").click()
    page.locator("#model-menu [role=option]").filter(has_text="another one").first.click()
    page.locator("#model-name").locator("input, textarea").fill("x" * 200)
    assert fits(page)
    page.get_by_label("Chat", exact=True).click()
    places.unfold(page)
    set_number(page, "#decode-settings input[type=number][aria-label*='New tokens']", 24)
    page.locator("#chat-message textarea").fill("a fox went home " + "x" * 80)
    page.locator("#chat-message textarea").press("Enter")
    page.wait_for_selector(".talk-figures")
    assert fits(page)
    turn_to(page, "Side by side", "#race-run")
    page.locator("#race-settings button").first.click()
    set_number(page, "#race-settings input[type=number][aria-label*='New tokens']", 24)
    page.locator("#race-prompt textarea").fill("a fox " + "x" * 80)
    page.click("#race-run")
    page.wait_for_selector(".race-player")
    assert fits(page)
