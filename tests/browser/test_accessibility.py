"""axe finds nothing serious and nothing scrolls sideways in any tab, on a phone too; a visible focus."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from places import PARTS, says, set_tokens, turn_to, unfold

pytestmark = pytest.mark.browser

GRAVE = ("serious", "critical")
# Browsers themselves let the keyboard reach an area that scrolls, but for Safari.
OPTIONS = {"resultTypes": ["violations"], "rules": {"scrollable-region-focusable": {"enabled": False}}}
# gradio's own: an empty plot is a plain box with a label until its chart is there.
# Of a drawn chart axe would look at thousands of lines; its colours have a test of their own.
CONTEXT = {"exclude": [[".empty.unpadded_box"], [".js-plotly-plot"]]}
TABS = [name for name in PARTS if name != "Watch"]
READY = {  # content of a tab once it is drawn
    "Learn": ".learn-choice",
    "Side by side": ".race-lane",
    "Methods": "#methods-table table",
    "Speed": "#speed-bars .js-plotly-plot",
    "Trees": "#trees-speed .js-plotly-plot",
    "Train": "#train-loss .js-plotly-plot",
    "Hardware": "#hardware-roofline .js-plotly-plot",
    "Experiments": "#experiment-details summary",
}
NODES = "document.querySelectorAll('#trees-drawing [data-node]').length"
EXPERIMENT = """words => ['#experiment-text', '#experiment-details'].some(
    where => document.querySelector(where)?.innerText.includes(words))"""
WIDE, PHONE, ZOOMED = (1440, 900), (390, 844), (720, 450)  # the last is 1440 × 900 at 200 %


@pytest.fixture(scope="session")
def axe() -> Any:
    module = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    return module.Axe()


def findings(axe: Any, page: Any, where: str) -> list[str]:
    """What axe calls serious or critical, a line each."""
    violations = axe.run(page, context=CONTEXT, options=OPTIONS).response["violations"]
    return [
        f"{violation['id']} in {where} at {node['target']}: {node['failureSummary']}"
        for violation in violations if violation["impact"] in GRAVE
        for node in violation["nodes"]
    ]  # fmt: skip


def fits(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def tab_states(page: Any, name: str) -> Iterator[str]:
    """A tab as it opens, and with what makes it larger."""
    turn_to(page, name)
    if name == "Methods" and not page.locator(READY[name]).is_visible():
        page.click("#methods-figures button")
    if name in READY:
        page.wait_for_selector(READY[name])
    yield name
    if name == "Learn":
        yield from learn_states(page)
    elif name == "Trees":
        page.fill("#trees-nodes input[type=number]", "40")
        page.press("#trees-nodes input[type=number]", "Tab")
        page.wait_for_function(f"{NODES} === 40")
        assert page.locator("#trees-drawing").bounding_box()["width"] > 300  # it scrolls in its own frame
        yield "a tree of 40 nodes"
    elif name == "Experiments":
        for record, title in (("table2", "Ways to train"), ("figure4", "Sparse against dense trees")):
            page.locator("#experiment-choice input").click()
            page.get_by_role("option", name=title).click()
            page.wait_for_function(EXPERIMENT, arg=f"reproduce {record}")
            yield title


def decode_states(page: Any) -> Iterator[str]:
    """Watch with a run, in the states that show something else."""
    view = page.locator("#decode-view")
    view.locator(".mdv-node").first.wait_for()
    yield "a run"
    unfold(page)
    yield "what is folded"
    for phase in ("propose", "mask", "commit"):
        view.locator(f".mdv-phase[data-phase={phase}]").click()
        yield f"phase {phase}"
    view.locator(".mdv-phase[aria-pressed=true]").click()
    view.locator(".mdv-shareopen").click()
    yield "the menu Share"
    page.keyboard.press("Escape")
    view.locator("[data-act=help]").click()
    yield "the keys"
    page.keyboard.press("Escape")
    page.locator("#model-picker button").first.click()
    page.locator("#model-load").wait_for()
    yield "the menu of models"
    page.locator("#decode-mode label").nth(1).click()
    page.locator("#chat-run").wait_for()
    yield "the chat"


def learn_states(page: Any) -> Iterator[str]:
    for number in range(10):
        page.locator(".learn-dots button").nth(number).click()
        page.locator(".learn-choice").first.click()
        yield f"card {number + 1}"
    page.locator(".learn-dots button").nth(5).click()
    page.locator(".learn-body [data-term]").first.click()
    yield "a term"


@pytest.fixture(scope="module")
def page(shipped_address, open_warm_page):
    return open_warm_page(shipped_address, *WIDE, reduced_motion="reduce")


def test_a_phase_of_a_step_has_no_serious_finding(axe, page):
    state = next(state for state in decode_states(page) if state == "phase commit")
    assert findings(axe, page, state) == []  # the other states and tabs below


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, PHONE, ZOOMED], ids=["desktop", "phone", "zoomed"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_of_every_tab(axe, shipped_address, open_page, size, scheme):
    page = open_page(shipped_address, *size, color_scheme=scheme, reduced_motion="reduce")
    found, wider = [], []
    for state in itertools.chain(decode_states(page), *(tab_states(page, name) for name in TABS)):
        found += findings(axe, page, state)
        wider += [] if fits(page) else [state]
    assert wider == []
    assert found == []


@pytest.mark.slow
def test_a_phone_shows_what_runs_and_long_words_without_sideways_scrolling(private_address, open_page):
    page = open_page(private_address, *PHONE, alone=True)
    says(page, "#model-line", "Medusa heads")
    page.locator("#model-picker button").first.click()
    page.locator("#model-menu input").click()
    page.locator("#model-menu [role=option]").filter(has_text="another one").first.click()
    page.locator("#model-name").locator("input, textarea").fill("x" * 200)
    assert fits(page)
    page.get_by_label("Chat", exact=True).click()
    set_tokens(page, 24)
    page.locator("#chat-message textarea").fill("a fox went home " + "x" * 80)
    page.locator("#chat-message textarea").press("Enter")
    page.wait_for_selector(".talk-figures")
    assert fits(page)
    turn_to(page, "Side by side")
    page.locator("#race-settings button").first.click()
    tokens = page.locator("#race-settings input[type=number][aria-label*='New tokens']").first
    tokens.fill("24")
    tokens.press("Tab")
    page.locator("#race-prompt textarea").fill("a fox " + "x" * 80)
    page.click("#race-run")
    page.wait_for_selector(".race-player")
    assert fits(page)


def test_axe_would_find_pale_text(axe, empty_page):
    empty_page.set_content(
        "<main><h1>Title</h1><p style='color: #ccc; background: #fff'>pale words</p></main>"
    )
    found = [line.split()[0] for line in findings(axe, empty_page, "")]
    assert "color-contrast" in found


def test_a_slider_shows_that_it_has_the_focus(page):
    slider = page.locator("#decode-settings input[type=range]").first
    slider.wait_for()
    page.locator("#decode-settings .setting-temperature input[type=number]").focus()
    page.keyboard.press("Shift+Tab")
    ring = page.evaluate("""() => {
        document.querySelector("#decode-settings input[type=range]").focus();
        const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
        return `${document.activeElement.type} ${outlineStyle} ${outlineWidth}`;
    }""")
    assert ring == "range solid 3px"
