"""``tree show`` knows the names auto and default, as ``--tree`` does."""

from __future__ import annotations

import json

import pytest
from paths import ROOT

from medusa_core.cli import progress
from medusa_core.drafters.medusa import with_heads
from medusa_core.trees.budget import LatencyPoint
from medusa_core.trees.tree import load_tree

SHIPPED = load_tree(str(ROOT / "assets" / "model" / "heads" / "tree.json"))


@pytest.mark.parametrize("name", ["default", "auto"])
def test_without_measured_times_it_is_the_shipped_tree_and_auto_says_why(command, name):
    code, out, err = command(["tree", "show", name, "--json"])
    assert code == 0
    assert json.loads(out)["choices"] == [list(choice) for choice in SHIPPED.choices]
    note = "note: no step times are measured, so auto is the default tree: unset MEDUSA_MEASURE\n"
    assert err == (note if name == "auto" else "")


def test_with_measured_times_auto_is_the_fastest_one(command, monkeypatch):
    load = progress.load_for_runs
    times = (LatencyPoint(nodes=1, step_ms=1.0), LatencyPoint(nodes=64, step_ms=40.0))
    monkeypatch.setattr(progress, "load_for_runs", lambda *args: with_heads(load(*args), latency=times))
    code, out, err = command(["tree", "show", "auto", "--json"])
    assert code == 0
    assert 1 < json.loads(out)["nodes"] < SHIPPED.size
    assert "the fastest here" in err
