"""Sweeps and comparisons under way: a record for each value, and what is known when they are stopped."""

from __future__ import annotations

from collections import namedtuple

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation import other_work, random_model
from medusa_core.evaluation.bench import Bench
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.random_model import random_engine, random_prompts
from medusa_core.evaluation.sweep import Sweep, cases_of, fitting, measure_cases, simulated
from medusa_core.evaluation.turns import Measurement, MethodLog, complete_part, measure_run
from medusa_core.hardware.shapes import ModelShape, known_shapes
from medusa_core.llama.library import Library
from medusa_core.loading.devices import Placement, native_library
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
    assert fitting("context", engine, (16, 64, 128, 2048)) == (
        [16, 64],
        "Texts of 128 tokens and more are left out: with the new ones they would not fit the context of 96.",
    )
    assert fitting("nodes", single, (1, 2, 64))[1] == (
        "Trees of 64 nodes and more are left out: the heads have no more guesses."
    )


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
    with pytest.raises(MedusaError, match=r"llama-7b needs about 19\.3 GB of memory, 2\.15 GB are free"):
        random_engine(known_shapes()["llama-7b"], half)


# --- A measurement under way: what is known of it by then, when it is stopped, and what others did meanwhile.


TWO_PROMPTS = [tiny.random_tokens(5, seed=seed) for seed in range(2)]
CONFIG = GenerationConfig.of(max_new_tokens=6, tree="cartesian-2x2", ignore_eos=True)
METHODS = ["none", "medusa"]


class Stop:
    """Says stop after so many questions."""

    def __init__(self, answers=0):
        self.left = answers

    def __call__(self):
        self.left -= 1
        return self.left < 0


def one_run(tokens=2):
    return Measurement([0] * tokens, 1.0, 1, {})


@pytest.mark.parametrize(
    ("done", "complete"),
    [
        (([2], [1]), [1]),  # the prompts of the first round that both have had
        (([2, 1], [2, 1]), [2]),  # only whole rounds, once there is one
        (([2, 2], [2, 1]), [2]),
        (([2, 2], [2, 2]), [2, 2]),
        (([1], [0]), None),
    ],
)
def test_methods_are_compared_by_what_all_have_done(done, complete):
    logs = {
        name: MethodLog([[one_run()] * count for count in counts])
        for name, counts in zip("ab", done, strict=True)
    }
    found = complete_part(logs)
    assert [list(map(len, log.rounds)) for log in found.values()] == ([complete] * 2 if complete else [])


def test_a_record_is_there_after_each_turn_of_all(engine):
    bench = Bench(engine, TWO_PROMPTS, METHODS, CONFIG, rounds=2)
    assert bench.record() is None
    known = []
    for turn in bench.turns():
        record = bench.record()
        known.append(None if record is None else (record["settings"]["prompts"], record["settings"]["runs"]))
        if turn.done == 8:
            assert record["methods"]["medusa"]["over_limit"] > 0
            assert record["machine"]["cores"] >= 1
    assert known == [None, (1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (2, 1), (2, 2)]


def test_stopped_within_a_run_the_run_counts_for_nothing(engine):
    cut = measure_run(engine, TWO_PROMPTS[0], CONFIG.changed(method="none"), Limit(Stop(2)))
    assert (cut.cut, cut.steps) == (True, 3)
    assert not measure_run(engine, TWO_PROMPTS[0], CONFIG.changed(method="none")).cut
    flag = []
    bench = Bench(engine, TWO_PROMPTS, METHODS, CONFIG, rounds=3)
    for turn in bench.turns(Limit(lambda: bool(flag))):
        if turn.done == 5:
            flag.append(True)
    assert bench.record()["settings"]["runs"] == 1


def test_a_sweep_that_is_stopped_keeps_the_values_that_were_measured(engine):
    flag = []
    cases = cases_of("nodes", engine, METHODS, CONFIG, TWO_PROMPTS, (1, 2, 4))
    sweep = Sweep(cases, 2)
    assert sweep.points() == []
    for turn in sweep.turns(Limit(lambda: bool(flag))):
        assert turn.name in ("1 none", "2 medusa", "4 medusa")
        if turn.done == 2:
            flag.append(True)
    assert [point["value"] for point in sweep.points()] == [1, 2]
    assert list(Sweep(cases, 1).turns(Limit(lambda: True))) == []


def test_what_others_compute_is_counted_without_this_process(monkeypatch):
    times = namedtuple("times", "user nice system idle guest")
    own = namedtuple("own", "user system")
    now = {"everything": times(10.0, 0.0, 5.0, 100.0, 3.0), "own": own(4.0, 1.0), "clock": 50.0}
    monkeypatch.setattr(other_work.psutil, "cpu_times", lambda: now["everything"])
    monkeypatch.setattr(other_work.psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(other_work, "perf_counter", lambda: now["clock"])
    monkeypatch.setattr(other_work.psutil.Process, "cpu_times", lambda self: now["own"])
    others = other_work.OtherWork()
    now |= {"everything": times(16.0, 1.0, 6.0, 107.0, 4.0), "own": own(7.0, 1.0), "clock": 52.0}
    record = others.record()
    assert record == {"cores": 4, "other_cores_busy": 2.5}  # 8 s of all, 3 of our own, within 2 s
    assert other_work.busy_words(record).startswith("Other programs used 2.5 of 4 cores meanwhile")
    assert other_work.busy_words({"cores": 4, "other_cores_busy": 0.4}) == ""
