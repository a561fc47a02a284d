"""What the end of a run tells beside it: steps timed here, and whether the forward is exact."""

from __future__ import annotations

import json

import pytest
from page_runs import SETTINGS, run_decode

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import with_heads
from medusa_core.evaluation.step_times import timed_steps
from medusa_core.loading.load import load_engine
from medusa_core.trees.budget import LatencyPoint
from medusa_core.trees.tree import Topology
from ui.records.updates import StopFlag
from ui.session import Session

TIMES = (LatencyPoint(nodes=1, step_ms=2.5), LatencyPoint(nodes=8, step_ms=3.5))


def test_steps_are_known_only_where_they_were_timed(load):
    engine, run = load_engine(load), GenerationConfig.of(tree=Topology.from_choices([[0], [1], [0, 0]]))
    assert timed_steps(engine, run) is None
    timed = with_heads(engine, latency=TIMES)
    assert timed_steps(timed, run) == (2.5, pytest.approx(2.5 + 3 / 7))
    assert timed_steps(timed, run.changed(method="medusa+ngram")) is None
    assert timed_steps(with_heads(engine, latency=TIMES[1:]), run) is None
    assert timed_steps(with_heads(engine, latency=TIMES[:1]), run) is None


def test_the_end_of_a_run_says_what_is_known_of_its_model(load):
    session = Session(load)
    updates = list(run_decode(session, "abc", SETTINGS, StopFlag()))
    exact = session.model_at_hand(SETTINGS["selection"]).target.choice.exact
    last = json.loads(updates[-1].message)
    if last["kind"] == "several":
        last = last["messages"][-1]
    assert last["beside"] == {"timed_ms": None, "exact": exact, "small": ""}
