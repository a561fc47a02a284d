"""What a trace says of a run with the penalty or min-p; runs without have the files they had before."""

from __future__ import annotations

import copy
import json

import plain_penalty
import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.format import RunTrace, parse_trace
from medusa_core.trace.packed import packed, unpacked

SETTINGS = {"penalty": 1.4, "penalty_window": 7}


def recorded(engine, **settings):
    """The trace of a run and, by step, the logits that judged it and the model's own."""
    config = GenerationConfig.of(max_new_tokens=24, tree="cartesian-4x2x2", **settings)
    builder, logits = TraceBuilder(engine, config, tiny.PROMPT), []
    for step in engine.stream(tiny.PROMPT, config):
        builder.add(step)
        logits.append((step.logits.clone(), step.model_logits.clone()))
    return builder, logits


def test_records_with_a_penalty_come_back(engine):
    builder, _ = recorded(engine, **SETTINGS, min_p=0.1, temperature=0.7)
    trace = builder.finish()
    assert unpacked(json.loads(json.dumps(packed(trace)))) == trace
    read = parse_trace(json.dumps(builder.packed()).encode(), "it")
    assert read.model_dump() == trace
    assert (read.config.penalty, read.config.penalty_window, read.config.min_p) == (1.4, 7, 0.1)


def test_a_run_without_is_recorded_as_it_was_before(engine):
    builder, _ = recorded(engine)
    text = json.dumps(builder.packed())
    assert "penal" not in text
    assert "min_p" not in text
    read = RunTrace.model_validate(builder.finish())
    assert (read.config.penalty, read.config.penalty_window, read.config.min_p) == (1.0, 1024, 0.0)


def test_the_likeliest_tokens_are_those_of_the_processed_logits(engine):
    builder, logits = recorded(engine, **SETTINGS)
    for step, (processed, _) in zip(builder.finish()["steps"], logits, strict=True):
        p = torch.softmax(processed, dim=-1)
        for row in step["after"]:
            wanted = p[row["node"]].topk(5)
            assert row["token_ids"] == wanted.indices.tolist()
            assert row["p"] == pytest.approx(wanted.values.tolist(), abs=2e-4)


def test_the_models_own_choice_is_named_where_another_one_won(engine):
    """With the number of its copies in the window of that place, counted here from the whole context."""
    builder, logits = recorded(engine, **SETTINGS)
    text, found = list(tiny.PROMPT), 0
    for step, (processed, own) in zip(builder.finish()["steps"], logits, strict=True):
        tokens = [node["token_id"] for node in step["nodes"]]
        parents = [-1 if node["parent"] is None else node["parent"] for node in step["nodes"]]
        for row in step["after"]:
            context = [*text, *(tokens[node] for node in tiny.path_to(parents, row["node"]))]
            slow = plain_penalty.penalised(own[row["node"]], context, 1.4, 7)
            assert torch.equal(slow, processed[row["node"]])
            best = int(own[row["node"]].argmax())
            if best == row["token_ids"][0]:
                assert "penalised" not in row
            else:
                assert row["penalised"] == {
                    "token_id": best,
                    "text": tiny.LETTERS[best],
                    "copies": context[-7:].count(best),
                }
                found += 1
        text += step["emitted"]
    assert found > 3


def test_a_damaged_entry_is_refused(engine):
    whole = recorded(engine, **SETTINGS)[0].packed()
    place = next(i for i, step in enumerate(whole["steps"]) if "penalised" in step["after"])
    for entry in ([99, 0, 1], [-1, 0, 1], [0, 0, 0], [0, 0], [0, 10_000, 1]):
        damaged = copy.deepcopy(whole)
        damaged["steps"][place]["after"]["penalised"] = [entry]
        with pytest.raises(MedusaError, match="is no trace of version 3"):
            parse_trace(json.dumps(damaged).encode(), "it")
