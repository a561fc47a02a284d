"""Any two runs side by side: what the second lane takes over, the third lane, its limits and its names."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
from page_runs import SETTINGS

from medusa_core.errors import MedusaError
from ui.components.lane_controls import SAME, read_lane
from ui.records.lanes import SecondLane, lane_names, what_counts
from ui.records.settings import BY_BUDGET, DYNAMIC, MOST_TOKENS, RunSettings, make_config
from ui.records.updates import StopFlag
from ui.runs.compare import MOST_REPETITIONS, CompareRequest

NAMES = [item.name for item in fields(SecondLane)]

NGRAM, TYPICAL = SecondLane(method="ngram"), SecondLane(method=None, acceptance="typical", temperature=0.5)


def settings(**changes):
    return RunSettings.of(**SETTINGS | {"max_new_tokens": 12} | changes)


def race(session, second, runs=1, **changes):
    request = CompareRequest("abcabc", settings(**changes), runs, second)
    last = list(session.run(request, StopFlag()))[-1]
    assert not last.problem, last.status
    return json.loads(last.message)


def refused(session, second, **changes):
    last = list(session.run(CompareRequest("abc", settings(**changes), 1, second), StopFlag()))[-1]
    assert last.problem
    return last.status


def test_two_methods_race_and_plain_decoding_is_timed_as_their_baseline(session):
    found = race(session, NGRAM, runs=2)
    names = [lane["name"] for lane in found["lanes"]]
    assert names == ["Medusa", "N-grams of the text", "Plain decoding"]
    assert found["baseline"] == 2
    assert [len(lane["runs"]) for lane in found["lanes"]] == [2, 2, 2]
    assert found["verdict"]["expected"] == "must"
    assert found["verdict"]["equal"]  # both are greedy, in float32


def test_where_a_lane_is_plain_decoding_there_is_no_third_one(session):
    found = race(session, SecondLane(), temperature=0.0)
    assert (len(found["lanes"]), found["baseline"]) == (2, 1)
    other_way = race(session, SecondLane(method="medusa"), method="none")
    assert [lane["name"] for lane in other_way["lanes"]] == ["Plain decoding", "Medusa"]
    assert other_way["baseline"] == 0


def test_one_method_races_itself_under_another_rule_and_with_another_tree(session):
    found = race(session, TYPICAL)
    assert [lane["name"] for lane in found["lanes"]] == [
        "Medusa · temperature 0 · match",
        "Medusa · temperature 0.5 · typical",
        "Plain decoding",
    ]
    assert found["verdict"]["expected"] == "may"
    small = race(session, SecondLane(method=None, tree=BY_BUDGET, budget=3))
    assert small["lanes"][1]["name"] == "Medusa · 3 nodes"
    dynamic = race(session, SecondLane(method=None, tree=DYNAMIC, budget=9))
    assert dynamic["lanes"][1]["name"] == "Medusa · dynamic tree of 9 nodes"


@pytest.mark.parametrize(
    ("second", "changes"),
    [(SecondLane(method=None), {}), (SecondLane(method="medusa", acceptance="match"), {}),
     (SecondLane(), {"method": "none"}), (SecondLane(method=None, epsilon=0.5), {})],
)  # fmt: skip
def test_a_run_is_not_compared_with_itself(session, second, changes):
    """ε counts for nothing with the rule "match", so it makes no other run."""
    assert "choose another method or setting" in refused(session, second, **changes)


def test_heads_that_are_not_there_are_refused(session):
    assert "no heads of your own" in refused(session, SecondLane(method=None, heads="yours"))


def test_limits_hold_for_the_sum_of_all_lanes():
    one, runs = settings(max_new_tokens=100), MOST_REPETITIONS
    assert CompareRequest("abc", one, runs).most_tokens() == 2 * runs * 100
    assert CompareRequest("abc", one, runs, NGRAM).most_tokens() == 3 * runs * 100


@pytest.mark.parametrize(
    ("second", "changes", "runs", "words"),
    [
        (SecondLane(), {"max_new_tokens": MOST_TOKENS + 1}, 1, "the page allows"),
        (SecondLane(), {}, MOST_REPETITIONS + 1, "choose 1 to 5"),
        (SecondLane(), {}, 0, "choose 1 to 5"),
        (SecondLane(temperature=9.0), {}, 1, "temperature is 9"),
        (SecondLane(epsilon=math.inf), {}, 1, "epsilon"),
        (SecondLane(tree="/etc/passwd"), {}, 1, "no tree is called"),
    ],
)
def test_forged_settings_of_the_second_lane_are_refused_before_any_run(second, changes, runs, words):
    with pytest.raises(MedusaError, match=words):
        CompareRequest("abc", settings(**changes), runs, second).most_tokens()


def test_fields_left_as_they_are_take_the_first_lanes_settings():
    first = settings(temperature=0.3, options={"epsilon": 0.2})
    untouched = read_lane(NAMES, [SAME, SAME, SAME, SAME, 16, SAME, "", " ", None, ""])
    assert untouched == SecondLane(method=None)
    assert untouched.settings(first) == first
    own = read_lane(NAMES, ["ngram", SAME, SAME, SAME, 16, SAME, "0,7", "0.5", "", "1.2"])
    assert (own.method, own.temperature, own.epsilon, own.delta, own.penalty) == (
        "ngram",
        0.7,
        0.5,
        None,
        1.2,
    )
    copying = read_lane(NAMES, [SAME, True, SAME, SAME, 16, SAME, "", "", "", ""])
    assert copying.settings(first).method == "medusa+lookup"
    assert copying.settings(replace(first, method="none")).method == "none"  # nothing to join it with
    assert untouched.settings(replace(first, method="hydra+lookup")).method == "hydra+lookup"
    whole = SecondLane(method="medusa+ngram", copies=False)  # as a program names it
    assert whole.settings(replace(first, method="hydra+lookup")).method == "medusa+ngram"
    with pytest.raises(MedusaError, match="ε of the second lane is 'much'"):
        read_lane(NAMES, [SAME, SAME, SAME, SAME, 16, SAME, "", "much", "", ""])


def test_lanes_are_named_by_what_differs_and_counts():
    def words(**changes):
        one = settings(acceptance="typical", temperature=0.7, **changes)
        return what_counts(one, make_config(one), {})

    names = lane_names(words(epsilon=0.09), words(epsilon=0.3))
    assert names == ("Medusa · ε 0.09", "Medusa · ε 0.3")
    assert lane_names(words(), words(method="none")) == ("Medusa", "Plain decoding")
