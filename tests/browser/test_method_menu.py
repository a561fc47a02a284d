"""The method menu of the page: n-grams draft and say where they were found; plain decoding drafts none."""

from __future__ import annotations

import pytest
from places import turn_to, unfold

from medusa_core.drafters import drafter_names
from ui.components.lane_controls import SAME

pytestmark = pytest.mark.browser


@pytest.fixture
def page(private_address, open_page):
    page = open_page(private_address)
    page.wait_for_selector("#decode-settings .setting-method input")
    unfold(page)
    return page


def test_a_method_brings_its_own_defaults_and_words(page):
    """Settings of one name are one slider; choosing a method sets it to what is usual there."""
    slider = page.locator("#decode-settings .setting-draft_nodes")
    for method, nodes, words in (
        ("EAGLE-3 · no weights here", "59", "levels of drafted nodes"),
        ("N-grams of the text", "15", "tokens drafted after"),
    ):  # fmt: skip
        page.locator("#decode-settings .setting-method input").click()
        page.get_by_role("option", name=method, exact=True).click()
        depth = page.locator("#decode-settings .setting-draft_depth")
        depth.get_by_text(words).wait_for()
        assert slider.locator("input[type=number]").input_value() == nodes


def test_both_menus_and_the_second_lanes_name_what_the_model_has_no_weights_for(page):
    """The menus are built before the model is loaded, so they are marked when it is."""
    entries = {}
    for menu in (
        "#decode-settings .setting-method",
        "#race-settings .setting-method",
        ".setting-second-method",
    ):
        if menu != "#decode-settings .setting-method":
            turn_to(page, "Side by side")
            fold = "#race-settings" if "race" in menu else "#race-second"
            page.locator(f"{fold} button").first.click()
        page.locator(f"{menu} input").click()
        page.locator(f"{menu} [role=option]", has_text="Hydra heads · no weights here").first.wait_for()
        entries[menu] = {
            text.strip("✓\n ") for text in page.locator(f"{menu} [role=option]").all_inner_texts()
        }
        page.keyboard.press("Escape")
    for menu, found in entries.items():
        assert {"Medusa heads", "N-grams of the text", "EAGLE-3 · no weights here"} <= found, menu
        assert len(found - {SAME}) == len(drafter_names()), menu
