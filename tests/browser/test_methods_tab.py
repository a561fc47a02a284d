"""The Methods tab in a browser: one press measures every method, and draws and lists them."""

from __future__ import annotations

import pytest
from greedy_texts import EMBEDDED
from places import turn_to

from medusa_core.drafters import title_of

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
NAMES = "#methods-plot .js-plotly-plot .textpoint text"
WORDS = "#methods-words .text-line-words"
TITLE = "#methods-plot .gtitle"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def unfold_figures(page) -> None:
    page.click("#methods-figures button")
    page.wait_for_selector("#methods-table tbody tr")


def test_one_press_measures_all_methods_and_a_phone_shows_them(shipped_address, open_page):
    page = open_page(shipped_address)
    turn_to(page, "Methods")
    page.wait_for_selector("#methods-plot .js-plotly-plot")
    for name, value in (("tokens", "16"), ("rounds", "1")):
        field = page.locator(f"#methods-{name} input[type=number]")
        field.fill(value)
        field.press("Tab")
    page.locator("#methods-prompt textarea").fill("One <b>two</b> three. One <b>two</b>")
    page.click("#methods-run")
    page.wait_for_selector("#methods-status :has-text('Measured.')")
    page.wait_for_selector("#methods-words :has-text('Measured on this machine, today at')")
    unfold_figures(page)
    rows = page.locator("#methods-table tbody th").all_inner_texts()
    titles = {title_of(name) for name in EMBEDDED}
    assert set(rows) == titles
    page.wait_for_selector(NAMES)
    assert (
        set(page.locator(NAMES).all_text_contents()) <= titles
    )  # where points lie close, the pointer says it
    page.locator("#methods-copies input").check()
    page.wait_for_selector("#methods-table th:has-text('Medusa heads + lookup')")
    assert page.locator("#methods-table tbody tr").count() == len(titles)
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0


def test_times_computed_for_a_large_model_take_the_place_of_the_measured_ones(shipped_address, open_page):
    page = open_page(shipped_address)
    turn_to(page, "Methods")
    page.wait_for_selector("#methods-plot .js-plotly-plot .xtitle:has-text('milliseconds per step')")
    unfold_figures(page)
    measured = page.locator("#methods-table tbody tr").all_inner_texts()
    recorded = page.locator(WORDS).inner_text()
    assert "omputed" not in page.locator("#methods-table").inner_text()
    assert not page.locator("#methods-model").is_visible()

    page.locator("#methods-times input[value=computed]").check()
    page.wait_for_selector(f"{WORDS}:has-text('Computed by formulas, not measured: llama-7b')")
    page.wait_for_selector(f"{TITLE}:has-text('Computed by formulas, not measured')")
    page.wait_for_selector("#methods-plot .xtitle:has-text('computed milliseconds')")
    page.wait_for_selector("#methods-table th:has-text('computed ms a step')")
    columns = page.locator("#methods-table thead th").all_inner_texts()
    assert not {"ms a step", "overhead", "tokens/s", "speedup"} & set(columns)
    computed = page.locator("#methods-table tbody tr").all_inner_texts()
    assert len(computed) == len(measured)
    before, after = (
        {name: cells[1] for name, *cells in (row.split("\t") for row in rows)}
        for rows in (measured, computed)
    )
    assert list(after) == list(before)
    heads = "Medusa heads"  # of their measured trees the one that pays most on that device
    assert {name: kept for name, kept in after.items() if name != heads} == {
        name: kept for name, kept in before.items() if name != heads
    }
    assert float(after[heads]) >= float(before[heads])
    assert page.locator("#methods-table li").count() > 0

    page.locator("#methods-device input").click()
    page.get_by_role("option", name="H200").click()
    page.wait_for_selector(f"{WORDS}:has-text('on H200')")
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0

    page.locator("#methods-times input[value=measured]").check()
    page.wait_for_selector("#methods-table th:text-is('ms a step')")
    page.wait_for_selector(TITLE, state="detached")
    page.wait_for_selector("#methods-model", state="hidden")
    assert page.locator("#methods-table tbody tr").all_inner_texts() == measured
    assert page.locator(WORDS).inner_text() == recorded
