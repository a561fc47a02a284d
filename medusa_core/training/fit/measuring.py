"""The second half of a fit: calibrate the trained heads, choose their tree, measure what was gained.

Everything is read from the folder that the user gets, in the way the user will load it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from medusa_core.checkpoints.names import ACCURACIES_NAME, HEAD_FILES, TREE_NAME
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.engine import Engine
from medusa_core.evaluation.bench import BASELINE, bench_record, run_bench
from medusa_core.evaluation.compare_heads import FRESH, compare_heads
from medusa_core.evaluation.limits import COUNTING, TIMING, Effort
from medusa_core.evaluation.measure_heads import measure_heads
from medusa_core.evaluation.turns import Turn
from medusa_core.loading.devices import free_memory
from medusa_core.loading.load import load_engine
from medusa_core.training.config import Medusa1Config
from medusa_core.training.fit.plan import LATENCY_SIZES, Plan
from medusa_core.training.fit.probe import OnProgress
from medusa_core.training.fit.prompts import HeldOut
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.loop import Progress
from medusa_core.training.recipes import result_of
from medusa_core.words import bytes_words

METHODS = [BASELINE, "medusa"]
_STAGES = {COUNTING: "calibration", TIMING: "latency"}
_EXACT_PROMPTS = 4  # compared in float32
_EXACT_TOKENS = 64
_TIMED_TOKENS = 32


def write_result(
    trained: Path, engine: Engine, heldout: HeldOut, plan: Plan, fitted: Path, watch: OnProgress
) -> None:
    """The folder of the result, its card left to the end: heads, adapter, accuracies with latency, tree."""
    shutil.rmtree(fitted, ignore_errors=True)
    fitted.mkdir(parents=True)
    for pattern in HEAD_FILES:
        for file in trained.glob(pattern):
            shutil.copyfile(file, fitted / file.name)
    prompts = heldout.calibration[: plan.heldout_prompts]
    effort = Effort(
        plan.heldout_tokens, LATENCY_SIZES, plan.latency_rounds, min(_TIMED_TOKENS, plan.heldout_tokens)
    )
    for found in measure_heads(engine, prompts, effort):
        watch(Progress(_STAGES[found.part], found.done, found.total, 0, 0.0))
    tree = found.best_tree
    expected = {
        "expected_length": round(tree.expected_length, 4),
        "expected_tokens_per_second": round(tree.tokens_per_second or 0.0, 2),
    }
    records = {ACCURACIES_NAME: found.record(engine), TREE_NAME: {"choices": tree.choices} | expected}
    for name, record in records.items():
        (fitted / name).write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(config: FitConfig, plan: Plan, fitted: Path, heldout: HeldOut, watch: OnProgress) -> dict:
    """Plain decoding and the fitted heads side by side, fresh heads, and equality in float32."""
    engine = load_engine(config.load(str(fitted)))
    prompts = heldout.measuring[: plan.heldout_prompts]
    settings = GenerationConfig(max_new_tokens=plan.heldout_tokens)
    exact_prompts = prompts[:_EXACT_PROMPTS]
    more = len(METHODS) * len(exact_prompts)
    for turn in compare_heads(engine, prompts, settings, plan.rounds):
        watch(Progress("measuring", turn.done, turn.total + more, 0, 0.0))
    record = bench_record(engine, turn.logs, METHODS, settings)
    record["fresh_tokens_per_step"] = round(turn.logs[FRESH].tokens_per_step(), 3)

    def progress(exact: Turn) -> None:
        watch(Progress("measuring", turn.done + exact.done, turn.total + more, 0, 0.0))

    short = replace(settings, max_new_tokens=min(_EXACT_TOKENS, plan.heldout_tokens))
    record["float32"] = _in_float32(config, fitted, engine, exact_prompts, short, progress)
    draft = medusa_draft(engine)
    tree = draft.tree("default")
    return {
        "model": {
            "base": engine.info.base,
            "parameters": engine.info.parameters,
            "heads": draft.heads.count,
            "head_parameters": engine.info.draft_parameters,
            "dtype": engine.info.dtype,
            "device": engine.info.device,
        },
        "tree": {"nodes": tree.size, "depth": max(tree.depths)},
        "measured": record,
    }


def _in_float32(
    config: FitConfig,
    fitted: Path,
    engine: Engine,
    prompts: list[list[int]],
    settings: GenerationConfig,
    progress: Callable[[Turn], None],
) -> dict:
    """Whether Medusa writes what plain decoding writes, in the dtype in which that can be asked exactly."""
    if engine.target.dtype != torch.float32:
        needed = 4 * (engine.info.parameters + engine.info.draft_parameters)
        free = free_memory(engine.target.output_device)
        if needed > free:
            return {"skipped": f"float32 needs {bytes_words(needed)}, {bytes_words(free)} were free"}
        engine = load_engine(config.load(str(fitted), "float32"))
    record = run_bench(engine, prompts, METHODS, settings, 1, progress)
    return {
        "identical_outputs": record["methods"]["medusa"]["identical_outputs"],
        "max_new_tokens": settings.max_new_tokens,
    }


def load_result(
    config: Medusa1Config, folder: Path, load: LoadConfig, beside: Engine | None = None
) -> Engine:
    """The engine of what a recipe finished, device and dtype as in ``load``.

    It stands on the weights of the engine ``beside`` it where they are the same: no second copy stays.
    """
    result = result_of(config, folder)
    engine = load_engine(replace(load, model=result.model, heads=result.heads))
    if beside is None or not _same_weights(engine, beside):
        return engine
    return with_heads(replace(engine, target=beside.target), library=beside.target.library)


def _same_weights(engine: Engine, other: Engine) -> bool:
    mine, theirs = (each.target.held.weights.state_dict() for each in (engine, other))
    return mine.keys() == theirs.keys() and all(
        mine[name].dtype == theirs[name].dtype and torch.equal(mine[name], theirs[name]) for name in mine
    )
