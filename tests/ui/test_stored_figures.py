"""The page's tabs state the figures of the store: step times of the headline, reasons beside the methods."""

from __future__ import annotations

import json

import pytest
from paths import ROOT
from tiny_experiments import headline

from medusa_core.config import LoadConfig
from medusa_core.experiments import store
from medusa_core.experiments.remarks import reason_against_paper
from ui.records.examples import ASSETS
from ui.records.lessons import lesson_records
from ui.records.selection import Selection
from ui.session import Session
from ui.tabs.methods import recorded_methods
from ui.tabs.trees.head_stats import stats_of

STEPS = {1: 0.5, 64: 0.5}  # of the record that ``headline`` makes


@pytest.fixture
def measured(tmp_path):
    """The shipped assets with a headline in their store."""
    for file in ASSETS.iterdir():
        if file.name != store.FOLDER:
            (tmp_path / file.name).symlink_to(file)
    store.keep(headline(), tmp_path / store.FOLDER)
    return tmp_path


def test_learn_and_trees_take_the_step_times_of_the_headline(measured, monkeypatch):
    records = lesson_records(0.8, measured)
    assert {row["nodes"]: row["step_ms"] for row in records["latency"]} == STEPS
    assert (records["trainings"], records["against"]) == ([], "")  # not measured there
    session = Session(LoadConfig(device="cpu"), measured)
    assert session.accuracies_file(Selection()).is_relative_to(ASSETS / "model")
    beside = measured / "model" / "heads" / "accuracies.json"
    monkeypatch.setattr(session, "accuracies_file", lambda selection: beside)
    stats = stats_of(session, Selection())
    assert {point.nodes: point.step_ms for point in stats.latency} == STEPS
    assert stats.machine.startswith("Intel(R) Xeon(R) Processor, bfloat16")
    assert [list(row) for row in stats.accuracies] == json.loads(beside.read_text("utf-8"))["accuracies"]
    # Heads of another place bring their own.
    elsewhere = ROOT / "assets" / "model" / "heads" / "accuracies.json"
    monkeypatch.setattr(session, "accuracies_file", lambda selection: elsewhere)
    assert len(stats_of(session, Selection()).latency) > len(STEPS)


def test_methods_say_why_the_order_is_not_the_published_one():
    record = store.record("spec-bench")
    reason = reason_against_paper(record)
    words = str(recorded_methods(ASSETS).words)
    assert reason in words
    assert bool(reason) == ("Against Spec-Bench" in words)


def test_every_reason_is_translated():
    texts = json.loads((ASSETS / "language" / "zh.json").read_text("utf-8"))["page"]
    remarks = json.loads((store.MEASURED / "remarks.json").read_text("utf-8"))
    reasons = [each["against_the_paper"] for each in remarks.values() if "against_the_paper" in each]
    assert len(reasons) == 5
    assert [reason for reason in reasons if reason not in texts] == []
