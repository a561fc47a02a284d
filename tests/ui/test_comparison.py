"""Comparing two runs: what the page hands to the engine, and whether the two texts must be equal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from trace_factory import make_trace

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation import step_times
from medusa_core.evaluation.other_work import OtherWork
from medusa_core.loading.tuning import keep
from medusa_core.trees.budget import LatencyPoint
from ui.records.settings import BY_BUDGET, DYNAMIC, MOST_TOKENS, RunSettings, Selection, make_config
from ui.records.updates import StopFlag
from ui.runs import verdict as comparison
from ui.runs.compare import FINDING, CompareRequest, Comparison, Lane
from ui.runs.session import Session
from ui.runs.verdict import CANNOT, MAY, MUST, equality_verdict, expectation

SETTINGS = {
    "temperature": 0.5, "epsilon": 0.1, "delta": 0.2, "max_new_tokens": 32, "acceptance": "typical",
    "tree": "default", "budget": 16, "seed": None,
}  # fmt: skip


def test_the_two_take_turns_at_going_first():
    assert comparison.run_order(2, 3) == [0, 1, 1, 0, 0, 1]
    assert comparison.run_order(3, 2) == [0, 1, 2, 2, 1, 0]


def test_no_step_is_captured_while_it_measures(captured, captures):
    lanes = [
        Lane(name, captured, GenerationConfig.of(method=name, max_new_tokens=40))
        for name in ("none", "ngram")
    ]
    counts = [
        (str(update.status), len(captures))
        for update in Comparison(lanes, captured.encode("abca")).run(2, StopFlag())
    ]
    timed = {count for status, count in counts if status.startswith("Timing ")}
    assert timed == {len(captures)}


@pytest.mark.parametrize("cores", [0.1, 2.5])
def test_other_programs_that_disturb_it_are_told(engine, monkeypatch, cores):
    monkeypatch.setattr(OtherWork, "record", lambda _: {"cores": 4, "other_cores_busy": cores})
    lanes = [
        Lane(name, engine, GenerationConfig.of(method=name, max_new_tokens=8)) for name in ("none", "ngram")
    ]
    *_, last = Comparison(lanes, engine.encode("abca")).run(1, StopFlag())
    warning = json.loads(last.message)["warning"]
    assert (warning["values"] == ["2.5", 4]) if cores > 1 else (warning == "")


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


def test_settings_become_a_config():
    config = make_config(RunSettings.of(**SETTINGS))
    assert (config.method, config.acceptance, config.seed) == ("medusa", "typical", 0)
    assert config.options["tree"] == "default"
    assert make_config(RunSettings.of(**SETTINGS | {"tree": BY_BUDGET})).options["tree"] == "default"
    dynamic = make_config(RunSettings.of(**SETTINGS | {"tree": DYNAMIC, "budget": 9.0}))
    assert dynamic.options["tree"] == "dynamic-9"
    with pytest.raises(MedusaError, match="lower"):
        make_config(RunSettings.of(**SETTINGS | {"max_new_tokens": MOST_TOKENS + 1}))
    with pytest.raises(MedusaError, match="temperature"):
        make_config(RunSettings.of(**SETTINGS | {"temperature": 9}))


# --- Whether two lanes' texts must be equal, may differ or cannot be compared: the table, without a page.


TYPICAL = {"name": "typical", "settings": {"epsilon": 0.09, "delta": 0.3, "root": "argmax"}}
DRAWN_ROOTS = {"name": "typical", "settings": {"epsilon": 0.09, "delta": 0.3, "root": "sample"}}
MATCH = {"name": "match", "settings": {}}


def run(words=None, *, heads=3, temperature=0.0, rule=MATCH, dtype="float32"):
    trace = make_trace(words, heads=heads)
    trace["config"] |= {"temperature": temperature, "acceptance": rule}
    trace["model"] |= {"dtype": dtype}
    return trace


GREEDY, PLAIN = {}, {"heads": 0}
HALF = {"dtype": "bfloat16"}
WARM = {"temperature": 0.7}
CASES = [
    ("greedy against plain", GREEDY, PLAIN, True, MUST, "must be equal"),
    ("two methods, both greedy", GREEDY, GREEDY, True, MUST, "in float32"),
    ("typical at temperature 0 is greedy", {"rule": TYPICAL}, PLAIN, True, MUST, "must be equal"),
    ("greedy in bfloat16", HALF, PLAIN | HALF, True, MAY, "near tie"),
    ("typical against greedy", WARM | {"rule": TYPICAL}, PLAIN, True, MAY, "typical acceptance also keeps"),
    ("typical twice", WARM | {"rule": TYPICAL}, WARM | {"rule": TYPICAL}, True, MAY, "plausible"),
    ("typical against plain draws", WARM | {"rule": TYPICAL}, WARM | PLAIN, True, CANNOT, "at random"),
    ("typical with drawn roots", WARM | {"rule": DRAWN_ROOTS}, PLAIN, True, CANNOT, "at random"),
    ("both draw alike", WARM, WARM | PLAIN, True, CANNOT, "same distribution"),
    ("both draw, one warmer", WARM, {"temperature": 1.0}, True, CANNOT, "set it to 0"),
    ("one draws", WARM, PLAIN, True, CANNOT, "temperature 0.7"),
    ("other weights", GREEDY, PLAIN, False, CANNOT, "different weights"),
    ("other weights and draws", WARM, PLAIN, False, CANNOT, "different weights"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first", "second", "same", "kind", "words"), CASES, ids=[c[0] for c in CASES]
)
def test_what_may_be_expected_of_two_texts(name, first, second, same, kind, words):
    for one, other in ((first, second), (second, first)):
        kind_of, sentence = expectation(run(**one), run(**other), same_weights=same)
        assert kind_of == kind
        assert words in sentence
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0  # one sentence


@pytest.mark.parametrize(("same_weights", "comparable"), [(True, True), (False, False)])
def test_a_difference_means_something_only_where_texts_can_be_compared(same_weights, comparable):
    first, second = run(["a", "b", "c"]), run(["a", "b", "x"], heads=0)
    second["output"]["token_ids"] = [0, 1, 99]
    verdict = equality_verdict(first, second, same_weights=same_weights)
    assert (verdict["equal"], verdict["index"], verdict["comparable"]) == (False, 2, comparable)
    assert (verdict["first"], verdict["second"]) == (" c", " x")


def test_where_the_forward_is_exact_greedy_texts_must_be_equal_in_bfloat16_too():
    kind, sentence = expectation(run(**HALF), run(**PLAIN | HALF), exact=True)
    assert kind == MUST
    assert "in bfloat16 too" in sentence
    assert expectation(run(**WARM | HALF), run(**PLAIN | HALF), exact=True)[0] == CANNOT


def test_steps_are_timed_before_speeds_are_compared(monkeypatch, own_cache):
    """For the tree that is fastest here; times that were kept meanwhile are found and need no measuring."""
    monkeypatch.delenv("MEDUSA_MEASURE", raising=False)
    session = Session(LoadConfig())
    engine = session.models.own()  # `load` would time steps in a thread that outlives the test
    points = [
        LatencyPoint(nodes=size, step_ms=float(size)).model_dump(exclude_none=True) for size in (1, 2, 16)
    ]
    keep(step_times._key(engine), points)
    settings = RunSettings(max_new_tokens=8)

    def compared(**changes):
        updates = list(session.run(CompareRequest("Once upon", replace(settings, **changes), 1), StopFlag()))
        return FINDING in [update.status for update in updates], " ".join(str(one.badge) for one in updates)

    assert compared(method="eagle3")[0] is False  # no lane has the tree that is looked for
    found, badges = compared()
    assert found
    nodes = medusa_draft(session.models.at_hand(Selection())).tree("auto").size
    assert f"Medusa’s tree “auto” has {nodes} nodes here, the fastest" in badges
    assert compared()[0] is False


def test_where_steps_cannot_be_timed_the_lane_says_so_and_nobody_waits_again(monkeypatch, own_cache):
    monkeypatch.delenv("MEDUSA_MEASURE", raising=False)
    monkeypatch.setattr(step_times, "_LEAST_SHARE", 2.0)  # as on a machine that is never quiet
    monkeypatch.setattr(step_times, "_ROUNDS", 2)
    session, flag = Session(LoadConfig()), StopFlag()
    session.models.own()
    request = CompareRequest("Once upon", RunSettings(max_new_tokens=8), 1)
    for waits in (True, False):
        updates = list(session.run(request, flag))
        assert (FINDING in [update.status for update in updates]) is waits
        assert any(
            "steps have not been timed in a quiet moment here" in str(update.badge) for update in updates
        )


def test_stop_ends_the_timing_of_steps_too(monkeypatch, own_cache):
    monkeypatch.delenv("MEDUSA_MEASURE", raising=False)
    session, flag = Session(LoadConfig()), StopFlag()
    session.models.own()
    for update in session.run(CompareRequest("Once upon", RunSettings(max_new_tokens=8), 1), flag):
        flag.stopped = flag.stopped or update.status == FINDING
        last = update.status
    assert last == "Stopped."
    assert session.models.wants_step_times(Selection())  # nothing was found, and the next run tries again
