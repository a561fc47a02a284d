"""The Speed tab in a browser: a press draws bars, says what limits a step; Stop keeps what was measured."""

from __future__ import annotations

import json

import pytest
from places import turn_to

from medusa_core.evaluation import step_limits
from medusa_core.hardware.this_machine import Machine
from ui.runs.speed import Effort
from ui.tabs.speed import tab

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
BARS = "#speed-bars .js-plotly-plot .barlayer .bars"
LIMIT = "#speed-bars .js-plotly-plot .scatterlayer .js-line"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
MACHINE = Machine("a machine", 1, ((2**30, 1e11),), (("bfloat16", 1e12), ("float32", 1e12)), 1e9, 0.0)


def press(page, part: str) -> None:
    page.locator(f"#speed-part input[value={part}]").check()
    page.click("#speed-run")


def says(page, where: str, words: str) -> None:
    page.wait_for_selector(f"{where} :has-text('{words}')")


def test_a_press_measures_a_step_and_stop_keeps_what_was_measured(shipped_address, open_page, monkeypatch):
    monkeypatch.setattr(step_limits, "measure_machine", lambda *_: MACHINE)
    monkeypatch.setattr(step_limits, "read_speed", lambda *_: 0.0)
    monkeypatch.setitem(tab.EFFORTS, tab.QUICKLY, Effort(2, 8, 1, 1e9))
    monkeypatch.setitem(tab.EFFORTS, tab.EXACTLY, Effort(2, 32, 999, 1e9))
    page = open_page(shipped_address)
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

    page.locator("#speed-effort input[value=exact]").check()
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
