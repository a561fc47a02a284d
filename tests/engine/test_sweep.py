"""Sweeps: a record for each value, of steps that are what the value says; and models of a shape."""

from __future__ import annotations

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation import random_model
from medusa_core.evaluation.random_model import random_engine, random_prompts
from medusa_core.evaluation.sweep import cases_of, check_values, fitting, measure_cases, simulated
from medusa_core.hardware.shapes import ModelShape
from medusa_core.llama.library import Library
from medusa_core.loading.devices import Placement
from medusa_core.loading.native_library import native_library
from medusa_core.trees.search import assumed_accuracies, expected_lengths

pytestmark = pytest.mark.usefixtures("slow_machine")

PROMPTS = [tiny.random_tokens(5, seed=seed) for seed in range(4)]
SHAPE = ModelShape("tiny", 32, 48, 4, 2, 8, 2, 64)
CPU = Placement(torch.device("cpu"), torch.float32, "as asked")


def swept(engine, sweep, values, methods=("none", "medusa"), prompts=PROMPTS, **settings):
    config = GenerationConfig.of(**{"max_new_tokens": 6, "tree": "cartesian-2x2"} | settings)
    return measure_cases(cases_of(sweep, engine, methods, config, prompts, values), 2)


def test_nodes(engine):
    records = swept(engine, "nodes", (1, 4, 9), max_new_tokens=12)
    assert [(one["value"], one["method"]) for one in records] == [(1, "none"), (4, "medusa"), (9, "medusa")]
    assert [round(one["nodes"]) for one in records] == [1, 4, 9]
    assert records[0]["tokens_per_step"] == 1.0 < records[2]["tokens_per_step"]


def test_context(engine):
    records = swept(engine, "context", (8, 40))
    assert [one["value"] for one in records] == [8, 8, 40, 40]
    for one in records:
        assert one["value"] <= one["context"] < one["value"] + 24


def test_batch(engine):
    records = swept(engine, "batch", (1, 2, 4), ignore_eos=True)
    assert [(one["value"], one["method"]) for one in records] == [
        (size, method) for size in (1, 2, 4) for method in ("none", "medusa")
    ]
    for one in records:
        assert one["batch"] == one["value"]
        assert (one["gain"] == 1.0) == (one["method"] == "none") or one["method"] == "medusa"
        assert one["over_limit"] > 0
    assert records[0]["over_first"] == records[1]["over_first"] == 1.0
    # All runs of a batch have as many rows in a forward as one of them, times their number.
    verify = [one["limits"]["phases"]["verify"]["flops"] for one in records if one["method"] == "none"]
    assert verify == pytest.approx([verify[0], 2 * verify[0], 4 * verify[0]], rel=0.02)


def test_values_that_cannot_be(engine):
    with pytest.raises(MedusaError, match="a text of 90 tokens and 24 more do not fit: the context holds 96"):
        swept(engine, "context", (90,))
    single = tiny.build_engine(engine.target.model, tiny.random_heads(engine.target.model, 1))
    with pytest.raises(MedusaError, match="64 nodes are more than the heads have guesses for"):
        swept(single, "nodes", (64,))
    for values in ((0, 2), ()):
        with pytest.raises(MedusaError, match="give whole numbers of 1"):
            check_values("nodes", values)
    assert fitting("context", engine, (16, 64, 128)) == (
        [16, 64], "context 128 left out: the context holds 96",
    )  # fmt: skip


def test_a_random_model_of_a_shape_decodes():
    engine = random_engine(SHAPE, CPU)
    assert engine.info.parameters == sum(p.numel() for p in engine.target.model.parameters())
    assert engine.info.parameters - SHAPE.parameters == 5 * SHAPE.hidden  # the norms
    assert engine.target.choice.native == isinstance(native_library(), Library)
    assert medusa_draft(engine).heads.count == random_model.HEADS
    config = GenerationConfig.of(max_new_tokens=6, ignore_eos=True)
    prompts = random_prompts(SHAPE, 2, 5)
    records = measure_cases(cases_of("nodes", engine, ["none"], config, prompts, (1, 16)), 1)
    assert [round(one["nodes"]) for one in records] == [1, 16]


def test_tokens_of_a_shape_are_simulated_by_accuracies():
    accuracies = assumed_accuracies(random_model.HEADS)
    engine = random_engine(SHAPE, CPU, accuracies)
    config = GenerationConfig.of(max_new_tokens=6, ignore_eos=True)
    plain, tree = cases_of("nodes", engine, ["none"], config, random_prompts(SHAPE, 2, 5), (1, 16))
    wanted = expected_lengths(accuracies, tree.config.options["tree"].choices)[-1]
    assert simulated(tree, {"step_ms": 2.0}, accuracies) == {
        "simulated_tokens_per_step": round(wanted, 3),
        "simulated_tokens_per_second": round(500 * wanted, 2),
    }
    assert simulated(plain, {"step_ms": 2.0}, accuracies)["simulated_tokens_per_step"] == 1.0


def test_a_shape_that_does_not_fit_says_how_much_it_takes(monkeypatch):
    monkeypatch.setattr(random_model, "free_memory", lambda device: 2 * 2**30)
    half = Placement(torch.device("cpu"), torch.bfloat16, "as asked")
    with pytest.raises(MedusaError, match=r"llama-7b needs about 18\.0 GB of memory, 2\.0 GB are free"):
        random_engine(random_model.find_shape("7b"), half)
