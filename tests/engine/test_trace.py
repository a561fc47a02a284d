"""Traces: what is written is what happened and survives the file; ends, header and output of a run."""

from __future__ import annotations

import itertools
import json

import pytest
import tiny

from medusa_core.config import GenerationConfig
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
    "a tree of another shape in each step": {"method": "ngram"},
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
