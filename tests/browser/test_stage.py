"""Watch shows one step whole: every part inside a desktop's window, and a swipe away on a phone."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from places import says
from shipped_runs import recordings
from view_trace import judge

pytestmark = pytest.mark.browser

SMALL, LARGE, PHONE, TABLET = (1440, 900), (1920, 1080), (390, 844), (820, 1180)
PARTS = [
    ".mdv-area-text",
    ".mdv-area-transport",
    ".mdv-phasehead",
    ".mdv-area-tree",
    ".mdv-area-mask",
    ".mdv-area-why",
]
# Which parts, nodes, labels and reasons the window or a frame around them cuts.
CUT = """(parts) => {
  const view = document.querySelector("#decode-view");
  const inside = (part) => {
    const box = part.getBoundingClientRect();
    const frames = [];
    for (let frame = part.parentElement; frame; frame = frame.parentElement) {
      if (getComputedStyle(frame).overflow !== "visible") frames.push(frame.getBoundingClientRect());
    }
    frames.push({ left: 0, top: 0, right: innerWidth, bottom: innerHeight });
    return box.width > 0 && box.height > 0 && frames.every((frame) =>
      box.left >= frame.left - 1 && box.top >= frame.top - 1
        && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1);
  };
  const seen = [".mdv-area-tree [data-node]", ".mdv-maskpic", "[data-role=why]", ...parts];
  return seen.filter((where) => {
    const found = [...view.querySelectorAll(where)];
    return !found.length || !found.every(inside);
  });
}"""
# The smallest type on a node of the tree, in pixels of the screen.
SMALLEST = """(which = ".token") => {
  const sizes = [...document.querySelectorAll(`.mdv-area-tree [data-node] ${which}`)].map((text) => {
    const { width } = text.ownerSVGElement.getBoundingClientRect();
    return parseFloat(getComputedStyle(text).fontSize) * width / text.ownerSVGElement.viewBox.baseVal.width;
  });
  return Math.min(...sizes);
}"""
CONTROLS = """() => {
  const all = [...document.querySelectorAll("button, input, select, textarea, summary, a[href]")];
  const seen = all.filter((one) => {
    const box = one.getBoundingClientRect();
    const shown = one.checkVisibility({ visibilityProperty: true }) && box.width > 2;
    return shown && box.bottom > 0 && box.top < innerHeight;
  });
  const whole = ".mdv-phases, fieldset, .block[class*=setting-]";
  return new Set(seen.map((one) => one.closest(whole) || one)).size;
}"""


@pytest.fixture(scope="module")
def shared(shipped_address, open_warm_page):
    """Call it with a size: a page of that size, in front and with no phase chosen."""

    @functools.cache
    def opened(size):
        page = open_warm_page(shipped_address, *size, reduced_motion="reduce")
        page.wait_for_selector("#decode-view .mdv-node")
        says(page, "#model-line", "5")
        return page

    def back_at_the_step(size, language="en", scheme="light"):
        page = opened(PHONE if size == PHONE else SMALL)
        page.bring_to_front()
        page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector("body.dark" if scheme == "dark" else "body:not(.dark)")
        page.select_option(".language-menu", language)
        page.wait_for_selector(f"html[lang^={language}]")
        page.locator("#decode-more input").uncheck()
        page.evaluate("document.activeElement.blur()")  # a field with the focus would take the keys
        page.keyboard.press("Escape")
        return page

    return back_at_the_step


@pytest.mark.sample
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_step_is_seen_whole_without_scrolling(shared, language, scheme):
    page = shared(SMALL, language, scheme)
    assert page.locator(".mdv-area-tree [data-node]").count() == 16
    page.wait_for_function(f"() => ({CUT})({PARTS}).length === 0")
    header = page.locator("h1, #places > .tab-wrapper [role=tab], #language select, #start-tour")
    middles = [box["y"] + box["height"] / 2 for box in (one.bounding_box() for one in header.all())]
    assert max(middles) - min(middles) < 12  # one line
    page.set_viewport_size(dict(zip(("width", "height"), LARGE, strict=True)))
    page.wait_for_function(f"() => ({CUT})({[*PARTS, '.mdv-area-kv']}).length === 0")


def test_the_first_view_has_few_controls_and_the_fold_has_the_rest(shared):
    page = shared(SMALL)
    # A slider with its number is one control, and so are the row of phases and the two modes.
    assert page.evaluate(CONTROLS) <= 25
    for folded in ("#recorded", ".when-complete .examples", "#decode-settings .setting-seed"):
        assert page.locator(folded).is_hidden()
    page.locator("#decode-more input").check()
    for folded in ("#recorded", ".when-complete .examples", "#decode-settings .setting-seed"):
        assert page.locator(folded).is_visible()


def test_a_phone_shows_the_tree_first_and_the_mask_by_a_swipe(shared):
    page = shared(PHONE)
    tree, mask = page.locator(".mdv-area-tree"), page.locator(".mdv-area-mask")
    page.wait_for_function(f"() => !({CUT})([]).includes('.mdv-area-tree [data-node]')")
    assert page.locator(".mdv-area-tree [data-node]").count() == 16
    assert page.evaluate(SMALLEST) >= 10
    text, box = page.locator("[data-role=text]").bounding_box(), tree.bounding_box()
    assert text["y"] + text["height"] <= box["y"]
    assert text["x"] + text["width"] <= 390
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 844
    assert mask.bounding_box()["x"] >= 390
    page.evaluate("document.querySelector('#decode-view .mdv-grid').scrollBy(3 * innerWidth, 0)")
    page.wait_for_function(
        "Math.abs(document.querySelector('.mdv-area-mask').getBoundingClientRect().x) < 30"
    )
    assert tree.bounding_box()["x"] < 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_only_a_phone_says_that_a_phase_is_to_be_tapped(shared):
    border = "(button) => getComputedStyle(button).borderTopStyle"
    for size, shown in ((PHONE, True), (SMALL, False)):
        page = shared(size)
        assert page.locator(".mdv-phasehint").is_visible() == shown
        assert (page.locator(".mdv-phase").first.evaluate(border) == "solid") == shown


def test_a_tablet_shows_text_and_tree_above_the_player_and_the_prompt(shared):
    page = shared(TABLET)
    shown = (
        "[data-role=text]",
        ".mdv-area-tree [data-node='0']",
        ".mdv-area-transport",
        "#decode-prompt textarea",
    )
    page.wait_for_function(
        """(shown) => shown.map((one) => document.querySelector(one).getBoundingClientRect())
          .every((box, i, all) => box.bottom <= innerHeight && (i === 0 || all[i - 1].bottom <= box.top))""",
        arg=list(shown),
    )


def test_a_phone_says_what_is_wrong_above_the_prompt(shared):
    page = shared(PHONE)
    page.locator("#decode-prompt textarea").fill("x " * 80_000)
    page.click("#decode-run")
    page.wait_for_selector("#decode-status >> text=shorten it")
    words = page.locator("#decode-status .text-line-words").bounding_box()
    assert words["y"] + words["height"] <= page.locator("#decode-prompt textarea").bounding_box()["y"]


def test_a_lecture_shows_the_stage_whole_in_type_for_the_last_row(shared):
    page = shared(LARGE)
    page.keyboard.press("l")  # no part of the page has the focus
    page.wait_for_selector("#decode-view .mdv.is-lecture")
    page.wait_for_function(f"() => ({CUT})({PARTS}).length === 0")
    page.wait_for_function(f"({SMALLEST})() >= 20")
    for act in ("play", "next", "lecture-exit"):
        assert page.locator(f"#decode-view [data-act={act}]").is_visible()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#decode-view .mdv[data-step='1']")
    page.keyboard.press("ArrowLeft")
    page.click("[data-act=lecture-exit]")
    page.wait_for_selector("#decode-view .mdv:not(.is-lecture)")


def test_the_heads_guesses_are_seen_whole_where_a_step_proposes(shared):
    page = shared(SMALL)
    page.keyboard.press(".")
    page.wait_for_selector("#decode-view .mdv[data-phase=propose]")
    heads = page.locator(".mdv-head")
    # Of the model's heads the tree asks no more than it has levels.
    assert heads.count() == max(map(len, recordings()[0].trace["config"]["tree"]))
    page.wait_for_function(f"() => !({CUT})([]).includes('.mdv-area-tree [data-node]')")
    frame = page.locator(".mdv-phasepic").bounding_box()
    last = heads.last.bounding_box()
    assert last["x"] + last["width"] <= frame["x"] + frame["width"]
    assert last["y"] + last["height"] <= frame["y"] + frame["height"]
    names = page.locator(".mdv-head .mdv-barname")
    cut = names.evaluate_all("all => all.filter((one) => one.scrollWidth > one.clientWidth).length")
    assert cut < names.count() / 3  # a long word


def test_the_first_run_is_a_greedy_story_and_the_first_for_the_bar_turns_at_a_touch(shared):
    first, typical = recordings()[0], next(one for one in recordings() if one.rule == "typical")
    assert first.trace["config"]["temperature"] == 0
    assert re.fullmatch(r" ?\w+", first.trace["steps"][0]["nodes"][0]["text"])
    page = shared(SMALL)  # this is the last test with it, since it shows another run
    page.locator("#decode-more input").check()
    page.locator("#recorded input").click()
    page.get_by_role("option", name=typical.name).click()
    page.wait_for_selector("#decode-view .mdv-badges :text('typical')")
    steps = [step["nodes"] for step in typical.trace["steps"]]
    moves = [least_move(nodes, **typical.trace["config"]["acceptance"]["settings"]) for nodes in steps]
    assert min(moves) < 2
    page.wait_for_selector(f"#decode-view .mdv[data-step='{moves.index(min(moves))}']")


def least_move(nodes: list[dict[str, Any]], epsilon: float, delta: float, root: str) -> float:
    """By what factor ε or δ has to change for another path to be kept, of those tried; infinite for none."""
    kept = judge(nodes, epsilon, delta)
    for by in (1.1, 1.25, 1.5, 2, 3):
        for share in (by, 1 / by):
            if any(
                kept != judge(nodes, *bar) for bar in ((epsilon * share, delta), (epsilon, delta * share))
            ):
                return by
    return float("inf")


def test_a_phone_finds_every_card_by_its_name(shared):
    page = shared(PHONE)
    names = page.locator("#decode-view .mdv-pager button")
    assert names.all_inner_texts() == [
        "Tree",
        "Phases",
        "Why?",
        "Mask",
        "KV cache",
        "So far",
        "The whole run",
    ]
    names.nth(0).click()
    page.wait_for_selector("#decode-view .mdv-pager [aria-current=true] >> text=Tree")
    names.nth(1).click()
    page.wait_for_selector("#decode-view .mdv-pager [aria-current=true] >> text=Phases")
    page.locator("#decode-view .mdv-phase[data-phase=propose]").click()
    page.wait_for_selector("#decode-view .mdv-phasewords >> text=Propose")
