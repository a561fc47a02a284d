"""A method that is chosen, and run, while the model still loads gets the settings that its weights bring."""

from __future__ import annotations

import json

import pytest
import slow_loading
from paths import ROOT
from places import says, unfold

from medusa_core.config import LoadConfig
from ui.runs.session import Session

pytestmark = pytest.mark.browser
NODES = "#decode-settings .setting-draft_nodes input[type=number]"
DEPTH = "#decode-settings .setting-draft_depth input[type=number]"


def test_it_takes_them_where_the_visitor_left_the_sliders_alone(serve_session, open_page, monkeypatch):
    monkeypatch.setattr(slow_loading, "PATIENCE", 90)  # seconds: a page may be slow to open
    gate = slow_loading.close_gate(monkeypatch, "weights")
    page = open_page(serve_session(Session(LoadConfig())))
    unfold(page)
    page.locator("#decode-settings .setting-method input").click()
    page.get_by_role("option", name="EAGLE-3", exact=True).click()
    page.wait_for_function(f"document.querySelector('{NODES}')?.value === '59'")
    page.locator(DEPTH).fill("4")
    page.locator(DEPTH).press("Tab")
    page.locator("#decode-run").click()
    assert gate.reached.wait(90)
    gate.opened.set()
    file = ROOT / "assets" / "model" / "drafters" / "eagle3" / "draft.json"
    brought = json.loads(file.read_text(encoding="utf-8"))["cpu"]["draft_nodes"]
    page.wait_for_function(f"document.querySelector('{NODES}').value === '{brought}'")
    assert page.locator(DEPTH).input_value() == "4"
    says(page, "#decode-status", "in the engine, ")  # the run has ended
    page.locator("[data-act=first]").click()
    page.wait_for_selector(f".mdv-maskpic[aria-label^='{brought + 1} row']")
