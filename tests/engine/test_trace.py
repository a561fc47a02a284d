"""Traces: the records are those of a slow and obvious version, to six digits, and survive the file."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace

import pytest
import tiny
import torch
from tiny import PROMPT

from medusa_core.acceptance.verdict import statistics_beside
from medusa_core.config import GenerationConfig
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.trace.format import RunTrace, read_trace

SETTINGS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 3},
    "typical": {"acceptance": "typical", "temperature": 0.7},
    "loose": {"acceptance": "typical", "temperature": 1.0, "epsilon": 0.01},
    "plain": {"method": "none"},
    "plain, sampled": {"method": "none", "temperature": 1.0},
    "a tree of another shape in each step": {"method": "ngram"},
}


def traced(engine, *, most_steps=None, **settings):
    """The trace builder of a run together with its steps."""
    config = GenerationConfig.of(**{"tree": "cartesian-4x2x2", "max_new_tokens": 25} | settings)
    return tiny.traced(engine, config, PROMPT, most_steps)


def record(engine, **settings):
    """The trace of a run together with its steps."""
    builder, steps = traced(engine, **settings)
    return builder.finish(), steps


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trace_validates_and_survives_the_file(engine, tmp_path, name):
    builder, _ = traced(engine, **SETTINGS[name])
    trace = builder.finish()
    read = RunTrace.model_validate(trace)
    assert read.model_dump() == trace  # nothing missing, nothing more, no other types
    write_trace(builder.ended(), tmp_path / "trace.json")
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


# --- The steps, node by node, against a slow version.


flat = itertools.chain.from_iterable
COMPARED = {"root", "accepted", "parent rejected", "not the model's choice"}
JUDGED = {"root", "accepted", "parent rejected", "below threshold", "not on the longest path"}


def slow_numbers(tree, logits, temperature):
    """p and entropy of each node, one row after the other and with every row of the logits."""
    p, entropies = [math.nan], [math.nan]
    for node in range(1, tree.size):
        row = logits[tree.parents[node]].float()
        probs = ((row - row.max()) / temperature).softmax(dim=-1)
        p.append(float(probs[tree.tokens[node]]))
        entropies.append(float(-(probs * (probs + 1e-5).log()).sum()))
    return p, entropies


def rounded(value):
    return None if math.isnan(value) else float(f"{value:.6g}")


def slow_nodes(step, temperature):
    """A step's nodes, each by itself."""
    tree, verdict, written = step.tree, step.verdict, []
    p, entropies = slow_numbers(tree, step.logits, temperature)
    for node, parent in enumerate(tree.parents):
        line = tiny.path_to(tree.parents, node)
        if node == 0:
            reason = "root"
        elif node in verdict.path:
            reason = "accepted"
        elif all(verdict.passes[i] for i in line[1:]):
            reason = "not on the longest path"
        else:
            reason = verdict.failure if not verdict.passes[node] else "parent rejected"
        written.append({
            "id": node,
            "parent": None if node == 0 else parent,
            "depth": len(line) - 1,
            "token_id": int(tree.tokens[node]),
            "text": tiny.LETTERS[int(tree.tokens[node])],
            "origin": asdict(tree.origins[node]),
            "draft_p": rounded(float(tree.draft_logp.exp()[node])) if node else None,
            "p": rounded(p[node]),
            "entropy": rounded(entropies[node]),
            "threshold": rounded(verdict.threshold[node]) if node and verdict.threshold else None,
            "passes": verdict.passes[node],
            "accepted": node in verdict.path,
            "reason": reason,
        })  # fmt: skip
    return written


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_the_slow_version(engine, name):
    trace, steps = record(engine, max_new_tokens=60, **SETTINGS[name])
    expected = [
        {
            "index": index,
            "cache_length": step.cache_length,
            "path": step.verdict.path,
            "emitted": step.emitted,
            "ms": {phase: round(value, 4) for phase, value in asdict(step.ms).items()},
        }
        for index, step in enumerate(steps)
    ]
    assert [{part: step[part] for part in expected[0]} for step in trace["steps"]] == expected
    nodes = [node for step in steps for node in slow_nodes(step, SETTINGS[name].get("temperature") or 1.0)]
    for found, wanted in zip(flat(step["nodes"] for step in trace["steps"]), nodes, strict=True):
        # Many rows are added up in another order than one: six digits may differ in the last.
        summed = {
            part: pytest.approx(wanted[part], rel=2e-5, abs=1e-9) for part in ("p", "entropy") if wanted[part]
        }
        assert found == wanted | summed
        if found["threshold"] is not None:  # the page judges again from these numbers
            assert found["passes"] == (found["p"] > found["threshold"])
    reasons = JUDGED if "acceptance" in SETTINGS[name] else COMPARED
    assert {node["reason"] for node in nodes} == ({"root"} if name.startswith("plain") else reasons)
    shapes = {tuple(step.tree.parents) for step in steps}
    assert (len(shapes) > 1) == (name == "a tree of another shape in each step")


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 1e-30])
def test_numbers_of_judged_rows_are_those_of_all_rows(dtype, temperature):
    tree = tiny.token_tree([-1, 0, 0, 1, 1, 3, 2], [3, 10, 499, 0, 7, 7, 250])
    logits = torch.randn(tree.size, 500, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    found, _ = statistics_beside(tree, logits, temperature)
    p, entropies = slow_numbers(tree, logits, temperature)
    assert [found.p[1:], found.entropy[1:]] == [p[1:], entropies[1:]]
    assert math.isnan(found.p[0])
    assert math.isnan(found.entropy[0])


def test_a_token_is_decoded_once_whatever_the_number_of_runs(engine, monkeypatch):
    engine = replace(engine, info=engine.info)  # another one, which has decoded nothing yet
    decoded, decode = [], type(engine.tokenizer).decode

    def counting(tokenizer, tokens, **options):
        decoded.append(tuple(tokens))
        return decode(tokenizer, tokens, **options)

    monkeypatch.setattr(type(engine.tokenizer), "decode", counting)
    for _ in range(2):
        tiny.recorded(engine, GenerationConfig.of(max_new_tokens=30), PROMPT)
    single = [tokens for tokens in decoded if len(tokens) == 1]
    assert len(single) == len(set(single)) > 3
