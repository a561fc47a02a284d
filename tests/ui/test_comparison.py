"""Comparing two runs, and what the page hands to the engine."""

from __future__ import annotations

import json

import page_runs
import pytest
from trace_factory import make_trace

from medusa_core.errors import MedusaError
from ui.records.settings import (
    BY_BUDGET,
    MAX_PROMPT_CHARACTERS,
    MOST_TOKENS,
    RunSettings,
    check_prompt,
    make_config,
)
from ui.records.updates import StopFlag
from ui.runs import verdict as comparison
from ui.session import Session

SETTINGS = {
    "temperature": 0.5,
    "epsilon": 0.1,
    "delta": 0.2,
    "max_new_tokens": 32,
    "acceptance": "typical",
    "tree": "default",
    "budget": 16,
    "seed": None,
}


def test_the_two_take_turns_at_going_first():
    assert comparison.run_order(2, 3) == [0, 1, 1, 0, 0, 1]
    assert comparison.run_order(3, 2) == [0, 1, 2, 2, 1, 0]


def test_the_median_run_is_one_of_the_runs():
    runs = [make_trace(step_ms=ms) for ms in (30.0, 10.0, 20.0)]
    assert comparison.median_run(runs) is runs[2]
    assert comparison.median_run(runs[:2]) is runs[0]


@pytest.mark.parametrize(
    ("ours", "plain", "index"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 5, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [], None)],
)
def test_first_difference(ours, plain, index):
    assert comparison.first_difference(ours, plain) == index


def test_a_difference_is_named_by_its_two_tokens():
    ours, plain = make_trace(["a", "b", "c", "d"]), make_trace(["a", "b", "x", "d"], heads=0)
    plain["output"]["token_ids"] = [0, 1, 99, 3]
    verdict = comparison.equality_verdict(ours, plain)
    assert (verdict["equal"], verdict["index"], verdict["comparable"]) == (False, 2, True)
    assert (verdict["first"], verdict["second"]) == (" c", " x")


def test_sampled_runs_are_not_comparable():
    ours, plain = make_trace(), make_trace(heads=0)
    ours["config"] |= {"temperature": 0.7}
    assert not comparison.equality_verdict(ours, plain)["comparable"]


def test_settings_become_a_config():
    config = make_config(RunSettings.of(**SETTINGS))
    assert (config.method, config.acceptance, config.seed) == ("medusa", "typical", 0)
    assert config.options["tree"] == "default"
    assert make_config(RunSettings.of(**SETTINGS | {"tree": BY_BUDGET})).options["tree"] == "default"
    with pytest.raises(MedusaError, match="lower"):
        make_config(RunSettings.of(**SETTINGS | {"max_new_tokens": MOST_TOKENS + 1}))
    with pytest.raises(MedusaError, match="temperature"):
        make_config(RunSettings.of(**SETTINGS | {"temperature": 9}))


@pytest.mark.parametrize("prompt", ["", "  \n", None, "x" * (MAX_PROMPT_CHARACTERS + 1)])
def test_prompts_the_page_does_not_take(prompt):
    with pytest.raises(MedusaError):
        check_prompt(prompt)


def test_the_lanes_are_called_by_the_methods_and_plain_decoding_has_no_peer(load):
    session = Session(load)

    def compared(**changes):
        settings = page_runs.SETTINGS | {"max_new_tokens": 8} | changes
        return list(page_runs.run_compare(session, "abcabc", settings, 1, StopFlag()))[-1]

    assert [lane["name"] for lane in json.loads(compared().message)["lanes"]] == ["Medusa", "Plain decoding"]
    lanes = json.loads(compared(method="ngram").message)["lanes"]
    assert [lane["name"] for lane in lanes] == ["N-grams of the text", "Plain decoding"]
    refused = compared(method="none")
    assert refused.problem
    assert "choose another method" in refused.status
