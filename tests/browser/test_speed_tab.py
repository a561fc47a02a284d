"""The tabs Methods, Speed, Train and Hardware in a browser: records first, then what a press measures."""

from __future__ import annotations

import json

import pytest
from greedy_texts import EMBEDDED
from places import says, turn_to

from medusa_core.drafters import title_of
from ui.runs.speed import Effort
from ui.tabs import speed as tab

pytestmark = pytest.mark.browser

DESKTOP, PHONE = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}
BARS = "#speed-bars .js-plotly-plot .barlayer .bars"
LIMIT = "#speed-bars .js-plotly-plot .scatterlayer .js-line"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def address(shipped_address):
    return shipped_address


@pytest.fixture
def page(warm_page):
    """One page for all tests, of a desktop's size and with the stored figures."""
    warm_page.set_viewport_size(DESKTOP)
    if warm_page.locator("#figures-back").is_visible():
        warm_page.click("#figures-back")
        warm_page.wait_for_selector("#figures-bar", state="hidden")
    return warm_page


def press(page, part: str) -> None:
    choose(page, "part", part)
    page.click("#speed-run")


def choose(page, name: str, value: str) -> None:
    """Choose, and wait until the page has it as its own: a click meanwhile would still send the old value."""
    page.locator(f"#speed-{name} input[value={value}]").check()
    page.wait_for_selector(f"#speed-{name} input[value={value}][aria-checked=true]")


@pytest.mark.usefixtures("slow_machine")
def test_a_press_measures_a_step_and_stop_keeps_what_was_measured(page, monkeypatch):
    monkeypatch.setitem(tab.EFFORTS, "quick", Effort(2, 8, 1, 1e9))
    monkeypatch.setitem(tab.EFFORTS, "exact", Effort(2, 32, 999, 1e9))
    turn_to(page, "Speed")
    says(page, "#speed-where", "Recorded, not measured here")
    page.wait_for_selector(BARS)
    assert page.locator(LIMIT).count() == 0  # a recording knows no limits of its machine
    press(page, "step")
    says(page, "#speed-status", "Measured.")
    says(page, "#speed-words", "On this machine a plain step takes")
    says(page, "#speed-where", "Measured on this machine, today at")
    page.wait_for_selector(LIMIT, state="attached")  # an upright line has no width
    assert page.locator(BARS).count() == 5  # the phases
    assert page.locator("#speed-table tbody th").all_inner_texts() == ["Plain decoding", "Medusa heads"]
    assert "bench --methods none,medusa --max-new-tokens 8 --runs 1" in page.inner_text("#speed-command")
    with page.expect_download() as download:
        page.click("#speed-save")
    with open(download.value.path(), encoding="utf-8") as file:
        assert set(json.load(file)["methods"]) == {"none", "medusa"}

    choose(page, "effort", "exact")
    press(page, "step")
    says(page, "#speed-command", "--runs 999")  # the first round of many is there
    page.locator("#speed-stop").dispatch_event("click")  # a plain click waits for frames of a busy page
    says(page, "#speed-status", "Stopped: what is shown was measured until then.")
    turn_to(page, "Methods")
    turn_to(page, "Speed")
    page.wait_for_selector(LIMIT, state="attached")  # an upright line has no width
    says(page, "#speed-words", "On this machine a plain step takes")
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0


# --- The Hardware tab in a browser: charts follow the sliders, bad settings are said, a measurement streams.


@pytest.fixture
def hardware(page):
    turn_to(page, "Hardware")
    return page


def set_number(page, where: str, value: int) -> None:
    field = page.locator(f"{where} input[type=number]")
    field.fill(str(value))
    field.press("Tab")


def test_the_roofline_follows_the_sliders(hardware):
    page = hardware
    page.wait_for_selector("#hardware-roofline .main-svg")
    says(page, "#hardware-words", "7.11 ms")
    assert page.locator("#hardware-table table").first.locator("tbody tr").count() == 10
    set_number(page, "#hardware-batch", 64)
    says(page, "#hardware-table", "arithmetic")


def test_the_gain_ends_above_batch_32(hardware):
    page = hardware
    page.get_by_role("tab", name="Gain").click()
    page.wait_for_selector("#gain-1 .main-svg")
    says(page, "#gain-words", "Best where")
    set_number(page, "#gain-batch", 64)
    says(page, "#gain-words", "No number of candidates is faster")


@pytest.mark.slow
def test_heads_that_cannot_be_shared_get_a_sentence(hardware):
    page = hardware
    page.get_by_role("tab", name="Memory wall").click()
    page.wait_for_selector("#memory-sharing .main-svg")
    set_number(page, "#memory-kv-heads", 8)
    says(page, "#memory-words", "GQA: 131 kB a token")
    set_number(page, "#memory-kv-heads", 5)
    says(page, "#memory-words", "do not divide 32 query heads evenly: use one of 1, 2, 4, 8")


def test_train_and_measured_here_open_on_records(page):
    turn_to(page, "Train")
    says(page, "#train-recorded", "Recorded, not measured here: embedded")
    for plot in ("loss", "top1", "top5"):
        page.wait_for_selector(f"#train-{plot} .scatterlayer .trace")
    assert "fresh heads" in page.locator("#train-gain").inner_text()
    turn_to(page, "Hardware")
    page.get_by_role("tab", name="Measured here").click()
    says(page, "#live-recorded", "Recorded, not measured here: embedded")
    for plot in ("passes", "held", "kinds"):
        page.wait_for_selector(f"#live-{plot} .barlayer .trace")
        page.wait_for_selector(f"#live-{plot} .annotation-text:has-text('recorded')")
    page.wait_for_selector("#live-growth .scatterlayer .trace")


def test_a_text_is_timed_with_and_without_a_cache(hardware):
    page = hardware
    page.get_by_role("tab", name="Measured here").click()
    page.wait_for_selector("#live-growth .main-svg")
    page.locator("#live-what input[value=cache]").check()
    set_number(page, "#live-tokens", 16)
    page.locator("#live-run").click()
    says(page, "#live-status", "Both chose the same token 16 of 16 times.")
    page.wait_for_selector("#live-growth .scatterlayer .trace")


# --- The Methods tab in a browser: one press measures every method, and draws and lists them.


NAMES = "#methods-plot .js-plotly-plot .annotation-text"
WORDS = "#methods-words .text-line-words"
TITLE = "#methods-plot .gtitle"


def unfold_figures(page) -> None:
    if not page.locator("#methods-table").is_visible():
        page.click("#methods-figures button")
    page.wait_for_selector("#methods-table tbody tr")


def test_times_computed_for_a_large_model_take_the_place_of_the_measured_ones(page):
    turn_to(page, "Methods")
    page.wait_for_selector("#methods-plot .js-plotly-plot .xtitle:has-text('milliseconds per step')")
    unfold_figures(page)
    measured = page.locator("#methods-table tbody tr").all_inner_texts()
    recorded = page.locator(WORDS).inner_text()
    assert "omputed" not in page.locator("#methods-table").inner_text()
    assert not page.locator("#methods-model").is_visible()

    page.locator("#methods-times input[value=computed]").check()
    says(page, WORDS, "Computed by formulas, not measured: llama-7b")
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
    says(page, WORDS, "on H200")
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0

    page.locator("#methods-times input[value=measured]").check()
    page.wait_for_selector("#methods-table th:text-is('ms a step')")
    page.wait_for_selector(TITLE, state="detached")
    page.wait_for_selector("#methods-model", state="hidden")
    assert page.locator("#methods-table tbody tr").all_inner_texts() == measured
    assert page.locator(WORDS).inner_text() == recorded


def test_one_press_measures_all_methods_and_a_phone_shows_them(page):
    turn_to(page, "Methods")
    page.wait_for_selector("#methods-plot .js-plotly-plot")
    set_number(page, "#methods-tokens", 16)
    set_number(page, "#methods-rounds", 1)
    page.locator("#methods-prompt textarea").fill("One <b>two</b> three. One <b>two</b>")
    page.click("#methods-run")
    says(page, "#methods-status", "Measured.")
    says(page, "#methods-words", "Measured on this machine, today at")
    unfold_figures(page)
    rows = page.locator("#methods-table tbody th").all_inner_texts()
    titles = {title_of(name) for name in EMBEDDED}
    assert set(rows) == titles
    page.wait_for_selector(NAMES)
    written = page.locator(NAMES).all_text_contents()
    names = {text for text in written if not text.isdigit()}  # numbers: the lines of equal speed
    assert names <= titles  # a name without a place of its own is on the hover
    assert len(names) > len(titles) / 2
    page.locator("#methods-copies input").check()
    page.wait_for_selector("#methods-table th:has-text('Medusa heads + lookup')")
    assert page.locator("#methods-table tbody tr").count() == len(titles)
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0
