"""The method menu of the page: n-grams draft and say where they were found; plain decoding drafts none."""

from __future__ import annotations

import json

import pytest
from places import turn_to, unfold

from medusa_core.config import LoadConfig
from medusa_core.drafters import drafter_names
from ui.components.lane_controls import SAME
from ui.session import Session

pytestmark = pytest.mark.browser

PROMPTS = [{"kind": "Story", "prompts": [{"label": "a", "text": "fade"}]}]
REPEATING = "fadebeadfadebeadfadebeadfadebead"


@pytest.fixture(scope="module")
def address(engine_folder, tmp_path_factory, serve_session):
    """The page around the tiny model."""
    assets = tmp_path_factory.mktemp("assets")
    (assets / "prompts.json").write_text(json.dumps(PROMPTS), encoding="utf-8")
    return serve_session(Session(LoadConfig(str(engine_folder), dtype="float32", device="cpu"), assets))


@pytest.fixture
def page(address, open_page):
    page = open_page(address)
    page.wait_for_selector("#decode-settings .setting-method input")
    unfold(page)
    return page


def run_with(page, method: str) -> None:
    """Choose a method by its title, run on a repeating prompt and wait for the end."""
    page.locator("#decode-settings .setting-method input").click()
    page.get_by_role("option", name=method, exact=True).click()
    page.locator("#decode-prompt textarea").fill(REPEATING)
    page.click("#decode-run")
    page.wait_for_selector("#decode-view .mdv-badges :text('finished: ')")


@pytest.mark.slow
def test_ngrams_draft_and_say_where_they_were_found(page):
    assert not page.locator("#decode-settings .setting-draft_depth").is_visible()
    run_with(page, "N-grams of the text")
    page.wait_for_selector("#decode-settings .setting-draft_depth", state="visible")
    view = page.locator("#decode-view")
    page.locator("#decode-view [data-act=first]").click()
    for _ in range(60):  # to a step that has a draft
        if view.locator(".mdv-node:not(.is-root)").count():
            break
        page.locator("#decode-view [data-act=next]").click()
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    node = view.locator(".mdv-node:not(.is-root)").first
    node.hover()
    page.wait_for_selector("#decode-view .mdv-node.lit:not(.is-root)")
    facts = view.locator(".mdv-facts").inner_text()
    assert "ngram ×" in facts
    assert "followed the root" in facts
    assert "in the text so far" in facts
    assert view.locator("[data-role=why]").inner_text().startswith("The drafter ngram’s guess ")
    assert "N-grams of the text" in view.locator(".mdv-badges").inner_text()
    loaded = view.locator(
        ".mdv-badges span"
    ).first.inner_text()  # the loaded model has heads, this run uses none
    assert "head" not in view.inner_text().replace(loaded, "").lower()


@pytest.mark.slow
def test_plain_decoding_has_no_guesses(page):
    run_with(page, "Plain decoding")
    view = page.locator("#decode-view")
    assert view.locator(".mdv-node").count() == 1
    assert "Plain decoding" in view.locator(".mdv-badges").inner_text()


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
