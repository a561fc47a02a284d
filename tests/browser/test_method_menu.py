"""The controls of Watch: methods, what does not count, and new tokens."""

from __future__ import annotations

import pytest
from places import turn_to, unfold

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafter_names
from ui.components.controls import FIELDS
from ui.components.lane_controls import SAME
from ui.records.settings import LONGEST_RUN, MOST_TOKENS

pytestmark = pytest.mark.browser

NOTES = """(fold) => Object.fromEntries([...document.querySelectorAll(fold + " [data-note]")].map((part) =>
  [[...part.classList].find((name) => name.startsWith("setting-")).slice(8), part.dataset.note]))"""


@pytest.fixture
def page(warm_page):
    """One page for all tests of the controls, which each of them sets."""
    turn_to(warm_page, "Watch")
    warm_page.wait_for_selector("#decode-settings .setting-method input")
    unfold(warm_page)
    return warm_page


def choose(page, fold: str, setting: str, entry: str) -> None:
    page.locator(f"{fold} .setting-{setting} input").click()
    page.get_by_role("option", name=entry, exact=True).click()


def wait_for_note(page, fold: str, setting: str, words: str) -> None:
    page.wait_for_selector(f"{fold} .setting-{setting}[data-note*='{words}']")


def test_settings_that_do_not_count_with_the_method_say_so(page):
    fold = "#decode-settings"
    page.locator(fold).get_by_label("typical").check()
    choose(page, fold, "method", "N-grams of the text")
    wait_for_note(page, fold, "tree", "counts for nothing with this method")
    said = page.locator(f"{fold} .setting-tree .setting-note").all_inner_texts()
    assert said == ["→ counts for nothing with this method"]  # text, which a screen reader reads
    wait_for_note(page, fold, "heads", "count for nothing with this method")
    choose(page, fold, "method", "Plain decoding")
    if page.locator(f"{fold} .setting-temperature input[type=number]").input_value() == "0":
        page.locator(f"{fold} .setting-temperature input[type=number]").fill("0.7")
        page.locator(f"{fold} .setting-temperature input[type=number]").press("Tab")
    wait_for_note(page, fold, "epsilon", "this method guesses nothing")
    wait_for_note(page, fold, "delta", "this method guesses nothing")
    choose(page, fold, "method", "Medusa heads")
    page.wait_for_selector(f"{fold} .setting-tree:not([data-note*='nothing'])")
    assert not any("nothing" in note for note in page.evaluate(NOTES, fold).values())


def test_a_method_brings_its_own_defaults_and_words(page):
    """Settings of one name are one slider; choosing a method sets it to what is usual there."""
    slider = page.locator("#decode-settings .setting-draft_nodes")
    for method, nodes, words in (
        ("EAGLE-3 · no weights here", "59", "levels of drafted nodes"),
        ("N-grams of the text", "15", "tokens drafted after"),
    ):  # fmt: skip
        choose(page, "#decode-settings", "method", method)
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


# --- The slider of new tokens on one's own page: far, dragged in round numbers, exact by box and keys.


SLIDER = "#decode-settings .setting-max_new_tokens"
DRAG = """([selector, value, held]) => {
  const range = document.querySelector(selector + " input[type=range]");
  if (held) range.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
  else range.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "ArrowRight" }));
  range.value = value;
  range.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_it_goes_to_the_longest_run_in_sane_steps(page):
    box = page.locator(f"{SLIDER} input[type=number]")
    box.wait_for()
    most = min(LONGEST_RUN, FIELDS["max_new_tokens"].metadata["high"])
    assert page.locator(f"{SLIDER} input[type=range]").get_attribute("max") == str(most)
    assert most > MOST_TOKENS > GenerationConfig.max_new_tokens
    for value, held, shown in (
        (3217, True, "3200"),
        (3217, False, "3217"),
        (633, True, "650"),
        (7, True, "1"),
    ):
        page.evaluate(DRAG, [SLIDER, value, held])
        page.wait_for_function(f"document.querySelector('{SLIDER} input[type=number]').value === '{shown}'")
