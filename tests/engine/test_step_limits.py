"""The least time of a step: bytes and operations against a count by hand, and what bench says of them."""

from __future__ import annotations

import pytest
import tiny
import torch
from torch.utils.flop_counter import FlopCounterMode

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.evaluation import step_limits
from medusa_core.evaluation.bench import run_bench
from medusa_core.evaluation.step_limits import Ceilings, MeanStep
from medusa_core.model.target import Target

MS = {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.25, "total": 4.0}
PHASES = ("propose", "verify", "accept", "commit")


def limits(engine, nodes=1, positions=10, runs=1, **settings):
    step = MeanStep(nodes, positions, 1.0, MS, runs)
    found = step_limits.step_limits(engine, GenerationConfig.of(**settings), step, Ceilings(engine))
    return found.get("limits")


def test_operations_of_verify_are_those_of_the_model(slow_machine, model):
    """Against torch's own count of transformers' forward, which has the angles of positions too."""
    engine = tiny.build_engine(model, None)
    target, nodes = Target(tiny.build_model(tiny.tiny_config(2), "eager")), 7
    tree = tiny.token_tree([-1, *range(nodes - 1)], tiny.random_tokens(nodes, 1))
    cache = target.new_cache(64)
    target.prefill(tiny.random_tokens(10, 2), cache)
    with FlopCounterMode(display=False) as counter:
        target.verify(tree, cache)
    found = limits(engine, nodes, method="none")["phases"]["verify"]
    rotary = 2 * 4 * 17  # angles of the positions, a product too
    assert found["flops"] == pytest.approx(counter.get_total_flops(), abs=rotary * 10)


def test_bytes_of_a_plain_step_are_the_weights_and_little_else(slow_machine, model):
    engine = tiny.build_engine(model, None)
    weights = sum(p.numel() for p in model.parameters() if p.ndim > 1) - 24 * 32  # without the embedding
    found = limits(engine, positions=10, method="none")
    assert 1 < found["phases"]["verify"]["bytes"] / (4 * weights) < 1.15
    assert limits(engine, positions=1000, method="none")["bytes"] > 2 * found["bytes"]


def test_a_batch_reads_the_weights_once(slow_machine, model):
    engine = tiny.build_engine(model, None)
    one, eight = (limits(engine, runs=runs, method="none")["phases"]["verify"] for runs in (1, 8))
    assert eight["flops"] == 8 * one["flops"]
    assert eight["bytes"] < 3 * one["bytes"]


def test_over_limit_is_the_time_over_the_larger_of_both(slow_machine, engine):
    found = limits(engine, 5, tree="cartesian-4x2x2")
    for name, phase in found["phases"].items():
        least = max(phase["bytes"], phase["flops"]) / 1e6
        assert phase["limit_ms"] == pytest.approx(least, abs=1e-5)
        assert phase["over_limit"] == pytest.approx(MS[name] / least, rel=0.05)
    assert found["bytes"] == pytest.approx(sum(phase["bytes"] for phase in found["phases"].values()), abs=4)
    assert found["over_limit"] == pytest.approx(4e6 / max(found["bytes"], found["flops"]), rel=0.01)
    assert found["bound_by"] == "arithmetic"  # five rows a weight of four bytes


def test_heads_that_are_not_asked_are_not_read(slow_machine, engine):
    heads = medusa_draft(engine).heads
    each = heads.block_weight[0].numel() + heads.lm_weight[0].numel()
    for tree, depth in (("cartesian-4x2x2", 3), ("cartesian-2x2", 2)):
        found = limits(engine, tree=tree)["phases"]["propose"]
        assert (found["bytes"], found["flops"]) == (4 * depth * each, 2 * depth * each)
    assert limits(engine, method="ngram")["phases"]["propose"]["over_limit"] is None


def test_a_model_that_the_formulas_do_not_hold_for_has_no_limits(slow_machine):
    from families import family_model

    engine = tiny.build_engine(family_model("mixtral"), None, tokenizer=False)
    assert limits(engine, method="none") is None


def test_bench_gives_the_limits_of_each_method_and_phase(slow_machine, engine):
    config = GenerationConfig.of(max_new_tokens=8, tree="cartesian-4x2x2")
    record = run_bench(engine, [tiny.PROMPT], ["none", "medusa", "hf"], config, 1)["methods"]
    assert "over_limit" not in record["hf"]
    for name in ("none", "medusa"):
        entry = record[name]
        assert entry["over_limit"] == entry["limits"]["over_limit"] > 0
        assert set(entry["limits"]["phases"]) == set(PHASES)
        least = entry["step_ms"] / entry["limits"]["limit_ms"]
        assert entry["over_limit"] == pytest.approx(least, rel=0.02)
    nodes = record["medusa"]["limits"]["phases"]["verify"]["flops"]
    assert nodes > 10 * record["none"]["limits"]["phases"]["verify"]["flops"]


def test_the_faster_of_copies_and_reads_is_the_bandwidth(slow_machine, monkeypatch, engine):
    by_copies = limits(engine)["limit_ms"]
    monkeypatch.setattr(step_limits, "read_speed", lambda *_: 4e9)
    plain = limits(engine, method="none")
    assert (plain["bandwidth"], limits(engine)["limit_ms"] <= by_copies) == (4e9, True)


@pytest.mark.parametrize("phase", ["verify", "total"])
def test_no_step_is_faster_than_its_limit(slow_machine, monkeypatch, engine, phase):
    monkeypatch.setitem(MS, phase, 1e-4)
    found = limits(engine)
    least = found if phase == "total" else found["phases"][phase]
    assert least["over_limit"] == 1
    assert least["limit_ms"] == 1e-4


def test_reads_are_measured():
    assert 1e8 < step_limits.read_speed(2**20, torch.device("cpu"), 0.01) < 1e13


def test_the_speed_of_memory_is_read_off_a_part_of_a_large_model(engine, monkeypatch):
    """A second buffer as large as a model of 13 GB is more than a machine may have."""
    asked = []
    monkeypatch.setattr(step_limits, "read_speed", lambda size, _: asked.append(size) or 4e9)
    ceilings = Ceilings(engine)
    for size in (2**20, 13 * 2**30, 60 * 2**30):
        assert ceilings.device(size).bandwidth >= 4e9
    assert asked == [2**20, 2**30]
