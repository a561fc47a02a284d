"""Bad traces are refused when read: damaged, with numbers that are none, or that contradict each other."""

from __future__ import annotations

import copy
import json

import pytest
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import write_trace
from medusa_core.trace.format import read_trace
from medusa_core.trace.packed import Tables
from medusa_core.trace.run_record import RunRecord


@pytest.fixture(scope="module")
def good(engine):
    """A run in which step 1 accepts a draft."""
    config = GenerationConfig.of(
        tree="cartesian-4x2x2", max_new_tokens=24, temperature=0.5, acceptance="typical"
    )
    trace = tiny.recorded(engine, config).finish()
    assert len(trace["steps"][1]["path"]) > 1
    return trace


def read(trace, folder):
    file = folder / "trace.json"
    file.write_text(json.dumps(trace), encoding="utf-8")
    return read_trace(file)


def at(trace, *keys):
    """The part of the trace at a place."""
    for key in keys:
        trace = trace[key]
    return trace


NODE = ("steps", 1, "nodes", 2)
NUMBERS = {
    NODE: ("draft_p", "p", "entropy", "threshold"),
    ("steps", 1, "ms"): ("propose", "verify", "accept", "commit", "total"),
    ("config",): ("temperature",),
    ("output",): ("tokens_per_step", "tokens_per_second", "seconds"),
}
COUNTS = {
    NODE: ("token_id",),
    (*NODE, "origin"): ("head", "rank"),
    ("steps", 1): ("index", "cache_length"),
    ("steps", 1, "bonus"): ("token_id",),
    ("config",): ("seed", "max_new_tokens"),
    ("model",): ("parameters",),
    ("output",): ("new_tokens", "steps"),
}


def places(groups):
    return [(*where, name) for where, names in groups.items() for name in names]


NO_NUMBERS = (float("nan"), float("inf"), -float("inf"), -0.5, "0.5", True)
NO_COUNTS = (-1, 0.5, float("nan"), "1", True)
PLACES = [(place, NO_NUMBERS) for place in places(NUMBERS)] + [(place, NO_COUNTS) for place in places(COUNTS)]


@pytest.mark.parametrize(("place", "values"), PLACES, ids=lambda part: ".".join(map(str, part)))
def test_numbers_and_counts_that_are_none(good, tmp_path, subtests, place, values):
    trace = json.loads(json.dumps(good))  # nodes of equal origins share it in memory
    for value in values:
        at(trace, *place[:-1])[place[-1]] = value
        named = rf"is not a trace of version 2: {'.'.join(map(str, place))}: "
        with subtests.test(value=value), pytest.raises(MedusaError, match=named):
            read(trace, tmp_path)


@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_settings_of_a_rule_that_are_none(good, tmp_path, subtests, name):
    trace = copy.deepcopy(good)
    for value in NO_NUMBERS:
        trace["config"]["acceptance"]["settings"][name] = value
        named = rf"is not a trace of version 2: config.*{name}"
        with subtests.test(value=value), pytest.raises(MedusaError, match=named):
            read(trace, tmp_path)


@pytest.mark.parametrize("name", ["p", "draft_p", "threshold"])
def test_probabilities_above_one(good, tmp_path, name):
    trace = copy.deepcopy(good)
    at(trace, *NODE)[name] = 1.5
    with pytest.raises(MedusaError, match=rf"{name}: .*less than or equal to 1"):
        read(trace, tmp_path)


def _last_of_path(step):
    return step["nodes"][step["path"][-1]]


CONTRADICTIONS = {
    "a depth of another level": (
        lambda steps, _: steps[1]["nodes"][2].update(depth=3), "node 2 of step 1 has depth 3, .* make it 1"
    ),
    "a root below the root": (
        lambda steps, _: steps[1]["nodes"][0].update(depth=1), "node 0 of step 1 has depth 1, .* make it 0"
    ),
    "a root with a parent": (
        lambda steps, _: steps[1]["nodes"][0].update(parent=0), "the root of step 1 has parent 0"
    ),
    "a path that leaves out an accepted node": (
        lambda steps, _: steps[1]["path"].pop(), "of step 1 is off the path, but accepted is True"
    ),
    "a node of the path that is not accepted": (
        lambda steps, _: _last_of_path(steps[1]).update(accepted=False),
        "is on the path, but accepted is False",
    ),
    "a node of the path that does not pass": (
        lambda steps, _: _last_of_path(steps[1]).update(passes=False), "accepted is True and passes False"
    ),
    "tokens that are not the path's": (
        lambda steps, _: steps[1]["emitted"].__setitem__(0, steps[1]["emitted"][0] + 1), "step 1 emits"
    ),
    "a step that emits nothing": (lambda steps, _: steps[1]["emitted"].clear(), r"step 1 emits \[\]"),
    "a step that is missing": (lambda steps, _: steps.pop(1), "step 1 has index 2: steps count from 0"),
    "a bonus token that does not come": (
        lambda steps, _: steps[0]["bonus"].update(token_id=steps[0]["bonus"]["token_id"] + 1),
        "the bonus token of step 0 is not the root of step 1",
    ),
    "a run that goes on after its end": (
        lambda steps, _: steps[0].update(bonus=None), "the bonus token of step 0 is not the root"
    ),
    "a cache that jumps": (
        lambda steps, _: steps[1].update(cache_length=99), "the cache grows from 4 to 99"
    ),
    "an output of other tokens": (
        lambda _, output: output["token_ids"].append(1), "the output says .* both must be the same tokens"
    ),
    "an output of more tokens": (
        lambda _, output: output.update(new_tokens=99), "the output says 99 new tokens"
    ),
    "an output of more steps": (lambda _, output: output.update(steps=99), "in 99 steps, the steps emit"),
}  # fmt: skip


def test_contradictions_are_refused(good, tmp_path, subtests):
    for name, (change, words) in CONTRADICTIONS.items():
        with subtests.test(name=name):
            trace = copy.deepcopy(good)
            change(trace["steps"], trace["output"])
            with pytest.raises(MedusaError, match=words):
                read(trace, tmp_path)


# --- Files that are damaged or of another kind.


MISSING = object()
STEP = ("steps", 1)
FAULTS = {  # by title: place, value and message
    "other version": (("schema_version",), 0, "schema_version: Input should be 2"),
    "a step of nothing": (("steps",), [{}], r"steps\.0"),
    "missing part": (("output",), MISSING, "output: Field required"),
    "missing number": ((*NODE, "p"), MISSING, r"steps\.1\.nodes\.2\.p: Field required"),
    "text for a number": ((*NODE, "p"), "high", r"steps\.1\.nodes\.2\.p: Input should be a valid"),
    "unknown field": ((*STEP, "extra"), 1, r"steps\.1\.extra: Extra inputs"),
    "no known finish": (("output", "finish_reason"), "tired", r"output\.finish_reason: Input should be"),
    "ids out of order": ((*NODE, "id"), 7, r"steps\.1: .*node 2 of step 1 has id 7"),
    "parent after child": ((*NODE, "parent"), 9, r"steps\.1: .*node 2 of step 1 has parent 9"),
    "second root": ((*NODE, "parent"), None, r"steps\.1: .*node 2 of step 1 has parent None"),
    "no path": ((*STEP, "path"), [], r"steps\.1: .*path \[\] of step 1 does not lead down"),
    "path off the tree": ((*STEP, "path"), [0, 99], r"steps\.1: .*path \[0, 99\]"),
    "path that jumps": ((*STEP, "path"), [0, 9], r"steps\.1: .*path \[0, 9\]"),
    "path without root": ((*STEP, "path"), [1], r"steps\.1: .*path \[1\]"),
    "negative path": ((*STEP, "path"), [-1], r"steps\.1: .*path \[-1\]"),
    "no nodes": ((*STEP, "nodes"), [], r"steps\.1: .*path .* of step 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_trace_is_refused_with_its_place_named(fault, good, tmp_path):
    (*places, last), value, message = FAULTS[fault]
    trace = copy.deepcopy(good)
    part = at(trace, *places)
    if value is MISSING:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(MedusaError, match=f"trace.json is not a trace of version 2: {message}") as caught:
        read(trace, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; record the run again")


def test_several_faults_are_counted(good, tmp_path):
    trace = copy.deepcopy(good)
    del trace["output"], trace["prompt"], trace["model"]
    with pytest.raises(MedusaError, match=r"\(and 2 more\)"):
        read(trace, tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000])
def test_files_that_are_no_trace(content, tmp_path):
    (tmp_path / "trace.json").write_bytes(content)
    words = r"trace\.json is not a trace \(.*\): take a file that generate --trace or Share wrote"
    with pytest.raises(MedusaError, match=words):
        read_trace(tmp_path / "trace.json")


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(MedusaError, match=r"cannot read the trace .*: No such file"):
        read_trace(tmp_path / "trace.json")
    with pytest.raises(MedusaError, match=r"cannot write the trace .*: No such file"):
        write_trace(RunRecord({}, Tables()), tmp_path / "no" / "trace.json")
