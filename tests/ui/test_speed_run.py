"""A press in the Speed tab: parts, progress, what is kept when it is stopped, and what is refused."""

from __future__ import annotations

import json

import pytest

from medusa_core.config import LoadConfig
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.runs.speed import BATCH, DTYPE, NODES, STEP, Effort, SpeedRequest, SpeedUpdate
from ui.serving.policy import Policy
from ui.tabs.speed.results import Results

pytestmark = pytest.mark.usefixtures("slow_machine")

TEXTS = ("abca", "fad")
SHORT = Effort(2, 8, 2, 1e9)


def pressed(session, part, method="medusa", effort=SHORT, stop=lambda seen: False):
    flag, seen = StopFlag(), []
    for update in session.run(SpeedRequest(part, method, TEXTS, effort), flag):
        seen.append(update)
        flag.stopped = flag.stopped or stop(seen)
    assert [update.status for update in seen if update.problem] == []
    return seen


def records(updates):
    return [update for update in updates if isinstance(update, SpeedUpdate)]


def test_a_step_is_measured_round_by_round(session):
    updates = pressed(session, STEP)
    first, last = records(updates)
    assert (first.record["settings"]["runs"], last.record["settings"]["runs"]) == (1, 2)
    assert first.status.startswith("Timing ")
    assert "run 4 of 8" in first.status
    assert updates[-1].status == "Measured."
    assert set(last.record["methods"]) == {"none", "medusa"}
    assert last.flags == ("--methods", "none,medusa", "--max-new-tokens", "8", "--runs", "2")
    results = Results().with_record(last, Selection())
    assert results.sentence().startswith("On this machine a plain step takes")
    assert all(step.limit_ms > 0 for step in results.step_times())
    assert json.loads(json.dumps(last.record)) == last.record


def test_a_method_without_weights_is_measured_as_plain_decoding_alone(session):
    updates = pressed(session, STEP, "eagle3")
    assert set(records(updates)[-1].record["methods"]) == {"none"}
    assert any("no weights for it" in (update.badge or "") for update in updates)


def test_stopped_what_was_measured_stays(session):
    at_once = pressed(session, STEP, stop=lambda seen: True)
    assert records(at_once) == []
    assert at_once[-1].status.startswith("Stopped before ")
    later = pressed(session, STEP, stop=lambda seen: bool(records(seen)))
    assert records(later)[-1].record["settings"]["runs"] == 1
    assert later[-1].status == "Stopped: what is shown was measured until then."


def test_a_sweep_over_nodes_that_is_stopped(session):
    updates = pressed(session, NODES, stop=lambda seen: bool(records(seen)))
    last = records(updates)[-1]
    assert last.part == NODES
    assert [point["value"] for point in last.record["points"]] == [1, 2, 4, 8, 16, 32, 64]
    assert last.flags[-2:] == ("--sweep", "nodes")
    assert updates[-1].status.startswith("Stopped")
    assert len(Results().with_record(last, Selection()).points(NODES)) == 7


@pytest.mark.parametrize(
    ("part", "values"), [(BATCH, [1, 1, 2, 2, 4, 4, 8, 8]), (DTYPE, ["float32"] * 2 + ["bfloat16"] * 2)]
)
def test_other_sweeps(session, part, values):
    last = records(pressed(session, part, effort=Effort(2, 4, 1, 1e9)))[-1]
    assert [point["value"] for point in last.record["points"]] == values
    assert last.status == "Measured."


def test_what_cannot_be_measured_is_refused(session, load, assets):
    (update,) = session.run(SpeedRequest("speed", "medusa", TEXTS), StopFlag())
    assert "cannot be measured: choose one of step, nodes" in update.status
    public = Session(load, assets, Policy(public=True))
    *_, last = public.run(SpeedRequest(DTYPE, "none", TEXTS, SHORT), StopFlag())
    assert last.problem
    assert last.status.startswith("The owner of this page has chosen the dtype")
    bare = Session(LoadConfig(load.model, "none", dtype="float32", device="cpu"), assets)
    *_, last = bare.run(SpeedRequest(NODES, "none", TEXTS, SHORT), StopFlag())
    assert last.problem
    assert "has no Medusa heads for these trees: choose another sweep" in last.status
