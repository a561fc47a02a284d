"""The steps of a run reach the page several in a message: all of them, in their order, each once."""

from __future__ import annotations

import json

import pytest
from page_runs import SETTINGS, run_decode, trace_of

from medusa_core.config import LoadConfig
from medusa_core.trace.packed import TABLES, compact, unpacked
from ui.records.updates import StopFlag
from ui.session import Session

PROMPT = "bcad"


@pytest.fixture(scope="module")
def session(engine_folder):
    return Session(LoadConfig(model=str(engine_folder), device="cpu"))


def run(session, **changes) -> list:
    return list(run_decode(session, PROMPT, SETTINGS | changes, StopFlag()))


@pytest.mark.sample
@pytest.mark.parametrize("seconds", [0, 0.003, 60])
@pytest.mark.parametrize("changes", [{}, {"method": "ngram"}], ids=["medusa", "ngram"])
def test_messages_make_up_the_trace(session, monkeypatch, seconds, changes):
    monkeypatch.setattr("ui.runs.decode.TOGETHER_SECONDS", seconds)
    updates = run(session, **changes)
    begin, *told, end = [json.loads(update.message) for update in updates if update.message]
    assert [begin["kind"], end["kind"], {message["kind"] for message in told}] == ["begin", "end", {"steps"}]
    trace = trace_of(updates)
    tables, steps = {name: [] for name in TABLES}, []
    for message in told:
        assert message["first"] == len(steps)
        steps += message["steps"]
        for name in TABLES:
            tables[name] += message[name]
    assert unpacked(compact(begin["trace"], tables, steps, end["output"])) == trace
    if seconds == 0:
        assert all(len(message["steps"]) == 1 for message in told)
    if seconds == 60:  # the first at once, so that the page shows that the run goes on
        assert [len(message["steps"]) for message in told] == [1, len(steps) - 1]


def test_a_run_that_is_stopped_has_told_its_steps(session):
    flag, updates = StopFlag(), []
    for update in run_decode(session, PROMPT, SETTINGS, flag):
        updates.append(update)
        flag.stopped = True
    told = [message for update in updates if (message := json.loads(update.message or "{}")).get("steps")]
    assert sum(len(message["steps"]) for message in told) == len(updates[-1].trace["steps"]) > 0
