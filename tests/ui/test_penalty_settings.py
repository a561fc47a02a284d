"""The penalty and min-p of the page: from controls, links and recordings to the run, and in comparisons."""

from __future__ import annotations

import json

import pytest
from page_runs import SETTINGS, run_decode, trace_of
from trace_factory import make_trace

from medusa_core.errors import MedusaError
from ui.records.lanes import SecondLane
from ui.records.outside import settings_from_outside, settings_of_link
from ui.records.settings import MOST_WINDOW, RunSettings, make_config, settings_of
from ui.records.updates import StopFlag
from ui.runs.compare import CompareRequest
from ui.runs.methods import MethodsRequest, MethodsUpdate
from ui.runs.verdict import MAY, MUST, expectation
from ui.session import Session

PENALTY = {"penalty": 1.4, "penalty_window": 9.0}  # a slider hands a whole number over as a float


@pytest.fixture(scope="module")
def session(load):
    return Session(load)


def test_the_controls_reach_the_run_and_its_trace(session):
    settings = SETTINGS | PENALTY | {"min_p": 0.1, "temperature": 0.7, "max_new_tokens": 12}
    config = trace_of(list(run_decode(session, "abcabc", settings, StopFlag())))["config"]
    assert (config["penalty"], config["penalty_window"], config["min_p"]) == (1.4, 9, 0.1)


def test_a_link_and_a_program_may_set_them_within_their_range():
    config = make_config(settings_from_outside({**PENALTY, "min_p": 0.5}))
    assert (config.penalty, config.penalty_window, config.min_p) == (1.4, 9, 0.5)
    assert settings_of_link(json.dumps(PENALTY)) == PENALTY
    for wrong in ({"penalty": 0.5}, {"penalty_window": 1.5}, {"min_p": "0.1"}, {"min_p": 2}):
        with pytest.raises(MedusaError, match=next(iter(wrong))):
            settings_from_outside(wrong)


def test_a_recording_brings_them_along_where_the_sliders_hold_them():
    trace = make_trace()
    assert settings_of(trace)["penalty"] == 1.0
    trace["config"] |= {"penalty": 1.4, "penalty_window": 9, "min_p": 0.2}
    found = settings_of(trace)
    assert (found["penalty"], found["penalty_window"], found["min_p"]) == (1.4, 9, 0.2)
    trace["config"] |= {"penalty_window": MOST_WINDOW + 1}
    assert settings_of(trace)["penalty_window"] == 1024


def test_two_lanes_that_differ_in_the_penalty_alone_are_compared(session):
    first = RunSettings.of(**SETTINGS | PENALTY | {"max_new_tokens": 12})
    request = CompareRequest("abcabc", first, 1, SecondLane(method=None, penalty=1.0))
    last = list(session.run(request, StopFlag()))[-1]
    assert not last.problem, last.status
    found = json.loads(last.message)
    assert [lane["name"] for lane in found["lanes"]] == [
        "Medusa · penalty 1.4",
        "Medusa · penalty 1",
        "Plain decoding",
    ]
    assert found["verdict"]["expected"] == "may"
    assert "different penalties" in found["verdict"]["note"]


def test_lanes_with_one_penalty_must_have_one_text(session):
    first = RunSettings.of(**SETTINGS | PENALTY | {"max_new_tokens": 12})
    verdict = json.loads(list(session.run(CompareRequest("abcabc", first, 1), StopFlag()))[-1].message)[
        "verdict"
    ]
    assert verdict["equal"]
    assert verdict["expected"] == "must"


def test_a_penalty_on_no_tokens_is_none():
    first, second = make_trace(), make_trace()
    first["config"] |= {"penalty": 1.4, "penalty_window": 0}
    assert expectation(first, second).kind == MUST
    first["config"] |= {"penalty_window": 5}
    assert expectation(first, second).kind == MAY


def test_all_methods_are_measured_under_it_and_write_one_text(session):
    request = MethodsRequest("abcabc", 16, 1, penalty=1.4, penalty_window=9.0)
    updates = list(session.run(request, StopFlag()))
    last = next(update for update in reversed(updates) if isinstance(update, MethodsUpdate))
    assert {one["identical_outputs"] for one in last.record["methods"].values()} == {"1 of 1"}
    assert last.note == "All runs had a penalty of 1.4 on the last 9 tokens."
