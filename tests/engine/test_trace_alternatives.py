"""What the trace holds of the model's other answers: its likeliest tokens, and p at temperatures not run."""

from __future__ import annotations

import copy
import json
import math

import pytest
import tiny
import torch

from medusa_core.acceptance.sampling import entropy, probabilities
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.alternatives import TEMPERATURES, answers
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.format import read_trace


def record(engine, **settings):
    """The trace of a run together with its steps."""
    config = GenerationConfig.of(tree="cartesian-4x2x2", max_new_tokens=12, **settings)
    builder = TraceBuilder(engine, config, tiny.PROMPT)
    steps = list(engine.stream(tiny.PROMPT, config))
    for step in steps:
        builder.add(step)
    return builder.finish(), steps


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.3])
def test_the_alternatives_are_the_models_likeliest_tokens(engine, temperature):
    trace, steps = record(engine, acceptance="typical", temperature=temperature)
    for written, step in zip(trace["steps"], steps, strict=True):
        probs = probabilities(step.logits, temperature or 1.0)
        nodes = [row["node"] for row in written["after"]]
        parents = {node["parent"] for node in written["nodes"][1:]}
        assert nodes == sorted(parents | {written["path"][-1]})
        for row in written["after"]:
            best = sorted(range(probs.shape[1]), key=lambda t, row=row: -probs[row["node"], t].item())[:5]
            assert row["token_ids"] == best
            assert row["p"] == pytest.approx(probs[row["node"], best].tolist(), rel=1e-3)
            assert row["texts"] == [engine.token_text(token) for token in best]


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_p_at_another_temperature_follows_from_what_is_recorded(engine, temperature):
    trace, steps = record(engine, acceptance="typical", temperature=temperature)
    assert trace["temperatures"] == list(TEMPERATURES)
    for written, step in zip(trace["steps"], steps, strict=True):
        after = {row["node"]: row for row in written["after"]}
        for place, other in enumerate(TEMPERATURES):
            probs = probabilities(step.logits, other)
            for node in written["nodes"][1:]:
                row = after[node["parent"]]
                below = temperature * math.log(node["p"] / row["p"][0])
                expected = probs[node["parent"], node["token_id"]].item()
                assert math.exp(below / other - row["log_z"][place]) == pytest.approx(expected, rel=1e-2)
                known = entropy(probs)[node["parent"]].item()
                assert row["entropy"][place] == pytest.approx(known, rel=1e-3, abs=2e-4)


def test_places_where_few_tokens_are_possible_name_others_too():
    logits = torch.full((2, 64), -torch.inf).bfloat16()
    logits[:, 7:9] = 1
    found = answers(logits, 1.0, torch.tensor([0, 1]), torch.tensor([7, 3]))
    assert found.node_p.tolist() == [0.5, 0.0]
    assert found.p[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert len(set(found.tokens[0].tolist())) == 5


def test_sizes_are_the_models(engine):
    trace, _ = record(engine)
    config = engine.target.config
    assert trace["sizes"] == {
        "hidden": config.hidden_size,
        "vocabulary": engine.target.vocab_size,
        "layers": config.num_hidden_layers,
    }


def test_a_file_without_them_is_still_read(engine, tmp_path):
    trace, _ = record(engine)
    old = copy.deepcopy(trace)
    del old["sizes"], old["temperatures"]
    for step in old["steps"]:
        del step["after"]
    (tmp_path / "old.json").write_text(json.dumps(old), "utf-8")
    read = read_trace(tmp_path / "old.json")
    assert read.sizes is None
    assert all(step.after == [] for step in read.steps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row["p"].pop(), "5 tokens, 5 texts and 4 probabilities"),
        (lambda row: row["log_z"].pop(), "the run 5 temperatures"),
        (lambda row: row.update(node=99), "after node 99"),
    ],
)
def test_lists_that_do_not_fit_are_refused(engine, tmp_path, change, words):
    trace, _ = record(engine)
    change(trace["steps"][0]["after"][0])
    (tmp_path / "bad.json").write_text(json.dumps(trace), "utf-8")
    with pytest.raises(MedusaError, match=words):
        read_trace(tmp_path / "bad.json")
