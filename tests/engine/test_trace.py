"""Traces: what is written is what happened, what is read back is checked, and a bad file is told so."""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import asdict

import pytest
import tiny
import torch
from trace_factory import put

from medusa_core.acceptance.typical import threshold
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.trace.format import RunTrace, read_trace

PROMPT = [1, 2, 0, 3]
SETTINGS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 3},
    "typical": {"acceptance": "typical", "temperature": 0.7},
    "loose": {"acceptance": "typical", "temperature": 1.0, "epsilon": 0.01},
    "plain": {"method": "none"},
    "plain, sampled": {"method": "none", "temperature": 1.0},
}


def record(engine, *, most_steps=None, **settings):
    """The trace of a run together with its steps."""
    config = GenerationConfig.of(**({"tree": "cartesian-4x2x2", "max_new_tokens": 25} | settings))
    builder = TraceBuilder(engine, config, PROMPT)
    steps = list(itertools.islice(engine.stream(PROMPT, config), most_steps))
    for step in steps:
        builder.add(step)
    return builder.finish(), steps


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trace_validates_and_survives_the_file(engine, tmp_path, name):
    trace, _ = record(engine, **SETTINGS[name])
    read = RunTrace.model_validate(trace)
    assert read.model_dump() == trace  # nothing missing, nothing more, no other types
    write_trace(trace, tmp_path / "trace.json")
    assert read_trace(tmp_path / "trace.json") == read
    json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)  # no NaN


@pytest.mark.parametrize("name", SETTINGS)
def test_numbers_are_those_of_the_step(engine, name):
    trace, steps = record(engine, **SETTINGS[name])
    temperature = SETTINGS[name].get("temperature") or 1.0
    judged = SETTINGS[name].get("acceptance") == "typical"
    epsilon = SETTINGS[name].get("epsilon", 0.09)
    for written, step in zip(trace["steps"], steps, strict=True):
        assert written["index"] == step.index
        assert written["cache_length"] == step.cache_length
        assert written["path"] == step.verdict.path
        assert written["emitted"] == step.emitted
        for node, parent in zip(written["nodes"], step.tree.parents, strict=True):
            number = node["id"]
            assert node["token_id"] == int(step.tree.tokens[number])
            assert node["text"] == tiny.LETTERS[node["token_id"]]
            assert node["depth"] == step.tree.depths[number]
            assert node["origin"] == asdict(step.tree.origins[number])
            assert node["accepted"] == (number in step.verdict.path)
            if parent < 0:
                assert [node[k] for k in ("parent", "draft_p", "p", "entropy", "threshold")] == [None] * 5
                continue
            p = torch.softmax(step.logits[parent].double() / temperature, dim=-1)
            entropy = -float((p * torch.log(p + 1e-5)).sum())
            assert node["parent"] == parent
            assert node["p"] == pytest.approx(float(p[node["token_id"]]), rel=1e-4)
            assert node["entropy"] == pytest.approx(entropy, abs=1e-4)
            assert node["draft_p"] == pytest.approx(math.exp(float(step.tree.draft_logp[number])), rel=1e-4)
            if judged:
                assert node["threshold"] == pytest.approx(threshold(entropy, epsilon, 0.3), rel=1e-3)
                # The page judges again from these numbers: they have to lead to the same verdict.
                assert node["passes"] == (node["p"] > node["threshold"])
            else:
                assert node["threshold"] is None
                assert node["passes"] == (node["token_id"] == step.verdict.choices[parent])


@pytest.mark.parametrize("name", ["greedy", "typical", "loose"])
def test_every_node_has_the_reason_that_its_numbers_give(engine, name):
    trace, _ = record(engine, **SETTINGS[name], max_new_tokens=60)
    failed = "not the model's choice" if name == "greedy" else "below threshold"
    seen = set()
    for step in trace["steps"]:
        parents = [-1 if node["parent"] is None else node["parent"] for node in step["nodes"]]
        for node in step["nodes"]:
            ancestors = tiny.path_to(parents, node["id"])[1:-1]
            if node["parent"] is None:
                wanted = "root"
            elif node["accepted"]:
                wanted = "accepted"
            elif not node["passes"]:
                wanted = failed
            elif not all(step["nodes"][i]["passes"] for i in ancestors):
                wanted = "parent rejected"
            else:
                wanted = "not on the longest path"
            assert node["reason"] == wanted
            seen.add(wanted)
    # At temperature 0 only one path passes, so nothing can lose to a longer one.
    assert seen >= {"root", "accepted", failed, "parent rejected"} - (
        {"parent rejected"} if name == "loose" else set()
    )
    assert ("not on the longest path" in seen) == (name != "greedy")


def test_header_and_output(engine):
    trace, steps = record(engine, tree="cartesian-2x1", seed=7)
    tokens = tiny.emitted(steps)
    assert trace["schema_version"] == 2
    assert trace["config"]["drafter"] == {"name": "medusa", "settings": {"tree": "cartesian-2x1"}}
    assert trace["config"]["acceptance"] == {"name": "match", "settings": {}}
    assert trace["config"]["tree"] == [[0], [1], [0, 0], [1, 0]]
    assert trace["config"]["seed"] == 7
    assert trace["prompt"] == {"text": "bcad", "token_ids": PROMPT, "texts": ["b", "c", "a", "d"]}
    output = trace["output"]
    assert output["token_ids"] == tokens  # new tokens only
    assert output["text"] == "".join(tiny.LETTERS[token] for token in tokens)
    assert (output["finish_reason"], output["new_tokens"], output["steps"]) == ("length", 25, len(steps))
    assert output["tokens_per_step"] == pytest.approx(25 / len(steps), abs=1e-4)
    assert output["seconds"] == pytest.approx(sum(step.ms.total for step in steps) / 1000, abs=1e-3)
    assert output["tokens_per_second"] == pytest.approx(25 / output["seconds"], rel=1e-2)


def test_the_bonus_token_is_the_next_root_and_the_last_step_has_none(engine):
    trace, _ = record(engine)
    for step, after in itertools.pairwise(trace["steps"]):
        root = after["nodes"][0]
        assert step["bonus"] == {"token_id": root["token_id"], "text": root["text"]}
    assert trace["steps"][-1]["bonus"] is None


def test_plain_decoding_has_no_tree(engine):
    trace, steps = record(engine, method="none")
    assert trace["config"]["tree"] is None
    assert trace["output"]["tokens_per_step"] == 1.0
    assert all(len(step["nodes"]) == 1 for step in trace["steps"])
    assert len(steps) == 25


def test_the_text_ends_before_a_stop_string(engine):
    whole, _ = record(engine)
    stop = whole["output"]["text"][10:12]
    trace, _ = record(engine, stop=(stop,))
    assert trace["output"]["finish_reason"] == "stop"
    assert trace["output"]["text"] == whole["output"]["text"].split(stop)[0]
    assert engine.decode_text(trace["output"]["token_ids"]).endswith(stop)


def test_a_cancelled_run(engine):
    trace, _ = record(engine, most_steps=2)
    assert RunTrace.model_validate(trace).output.finish_reason == "cancelled"
    assert trace["output"]["steps"] == 2
    nothing, _ = record(engine, most_steps=0)
    output = RunTrace.model_validate(nothing).output
    assert (output.finish_reason, output.new_tokens, output.steps) == ("cancelled", 0, 0)
    assert (output.tokens_per_step, output.tokens_per_second) == (0.0, 0.0)


def test_begin_is_the_trace_without_its_steps(engine):
    config = GenerationConfig.of(tree="cartesian-2")
    trace = TraceBuilder(engine, config, PROMPT).begin()
    header = {"schema_version", "model", "config", "prompt", "sizes", "temperatures"}
    assert set(trace) == header | {"steps"}
    assert trace["steps"] == []


# --- bad files ---------------------------------------------------------------------------------------------


def drop(*keys):
    def change(trace):
        for key in keys[:-1]:
            trace = trace[key]
        del trace[keys[-1]]

    return change


FAULTS = {
    "other version": (put("schema_version", to=0), "schema_version: Input should be 2"),
    "missing part": (drop("output"), "output: Field required"),
    "missing number": (drop("steps", 1, "nodes", 2, "p"), r"steps\.1\.nodes\.2\.p: Field required"),
    "text for a number": (
        put("steps", 1, "nodes", 2, "p", to="high"),
        r"steps\.1\.nodes\.2\.p: Input should be a valid",
    ),
    "unknown field": (put("steps", 0, "extra", to=1), r"steps\.0\.extra: Extra inputs"),
    "unknown reason to finish": (
        put("output", "finish_reason", to="tired"),
        r"output\.finish_reason: Input should be",
    ),
    "ids out of order": (put("steps", 1, "nodes", 2, "id", to=7), r"steps\.1: .*node 2 of step 1 has id 7"),
    "parent after child": (
        put("steps", 1, "nodes", 2, "parent", to=9),
        r"steps\.1: .*node 2 of step 1 has parent 9",
    ),
    "second root": (
        put("steps", 1, "nodes", 2, "parent", to=None),
        r"steps\.1: .*node 2 of step 1 has parent None",
    ),
    "no path": (put("steps", 1, "path", to=[]), r"steps\.1: .*path \[\] of step 1 does not lead down"),
    "path off the tree": (put("steps", 1, "path", to=[0, 99]), r"steps\.1: .*path \[0, 99\]"),
    "path that jumps": (put("steps", 1, "path", to=[0, 9]), r"steps\.1: .*path \[0, 9\]"),
    "path without root": (put("steps", 1, "path", to=[1]), r"steps\.1: .*path \[1\]"),
    "negative path": (put("steps", 1, "path", to=[-1]), r"steps\.1: .*path \[-1\]"),
    "no nodes": (put("steps", 1, "nodes", to=[]), r"steps\.1: .*path .* of step 1"),
}


@pytest.fixture(scope="module")
def good_trace(engine):
    return record(engine)[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_trace_is_refused_with_its_place_named(fault, good_trace, tmp_path):
    change, message = FAULTS[fault]
    trace = copy.deepcopy(good_trace)
    change(trace)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace), encoding="utf-8")
    with pytest.raises(MedusaError, match=f"is no trace of version 2: {message}") as caught:
        read_trace(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_faults_are_counted(good_trace, tmp_path):
    trace = copy.deepcopy(good_trace)
    del trace["output"], trace["prompt"], trace["model"]
    (tmp_path / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    with pytest.raises(MedusaError, match=r"\(and 2 more\)"):
        read_trace(tmp_path / "trace.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00"])
def test_files_that_are_no_trace(content, tmp_path):
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(
        MedusaError, match=r"trace\.json is no trace \(.*\): take a file that generate --trace or Share wrote"
    ):
        read_trace(tmp_path / "trace.json")


def test_files_that_cannot_be_read_or_written(good_trace, tmp_path):
    with pytest.raises(MedusaError, match=r"cannot read the trace .*: No such file"):
        read_trace(tmp_path / "trace.json")
    with pytest.raises(MedusaError, match=r"cannot write the trace .*: No such file"):
        write_trace(good_trace, tmp_path / "no" / "trace.json")
