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
from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.engine import Engine
from medusa_core.evaluation.bench import BASELINE, machine_record, measure_run, run_bench
from medusa_core.evaluation.head_accuracy import Accuracies, count_heads
from medusa_core.evaluation.latency import measure_latency
from medusa_core.loading.devices import free_memory
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import GIB
from medusa_core.target.quantization import lm_head_weight
from medusa_core.training.fit.plan import LATENCY_SIZES, Plan
from medusa_core.training.fit.prompts import HeldOut, first_of
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.loop import Progress
from medusa_core.trees.budget import LatencyPoint, best_budget, budgets
from medusa_core.trees.search import search_tree

Watch = Callable[[Progress], None]
METHODS = [BASELINE, "medusa"]
_EXACT_PROMPTS = 4  # compared in float32
_EXACT_TOKENS = 64
_TIMED_TOKENS = 32


def write_result(
    trained: Path, engine: Engine, heldout: HeldOut, plan: Plan, fitted: Path, watch: Watch
) -> None:
    """The folder of the result, its card left to the end: heads, adapter, accuracies with latency, tree."""
    shutil.rmtree(fitted, ignore_errors=True)
    fitted.mkdir(parents=True)
    for pattern in HEAD_FILES:
        for file in trained.glob(pattern):
            shutil.copyfile(file, fitted / file.name)
    prompts = first_of(heldout.calibration, plan.heldout_prompts)
    found = _count(engine, prompts, plan, watch)
    points = _time(with_heads(engine, accuracies=found.shares), prompts, plan, watch)
    best = best_budget(budgets(found.shares, points))
    tree = search_tree(found.shares, best.nodes - 1)
    record = {
        "base": engine.info.base,
        "positions": found.positions,
        "accuracies": found.shares,
        "latency": [point.model_dump(exclude_none=True) for point in points],
        "machine": machine_record(engine) | {"device": engine.info.device, "dtype": engine.info.dtype},
    }
    _write(fitted / ACCURACIES_NAME, record)
    choices = [list(choice) for choice in tree.choices]
    _write(
        fitted / TREE_NAME,
        {
            "choices": choices,
            "expected_length": round(tree.expected_length, 4),
            "expected_tokens_per_second": round(best.tokens_per_second, 2),
        },
    )


def measure(config: FitConfig, plan: Plan, fitted: Path, heldout: HeldOut, watch: Watch) -> dict:
    """Plain decoding and the fitted heads side by side, fresh heads, and equality in float32."""
    engine = load_engine(config.load(str(fitted)))
    prompts = first_of(heldout.measuring, plan.heldout_prompts)
    settings = GenerationConfig(max_new_tokens=plan.heldout_tokens)
    exact_prompts = prompts[:_EXACT_PROMPTS]
    total = len(prompts) * (len(METHODS) * plan.rounds + 1) + len(METHODS) * len(exact_prompts)
    runs = iter(range(1, total + 1))

    def progress(_name: str) -> None:
        watch(Progress("measuring", next(runs), total, 0, 0.0))

    record = run_bench(engine, prompts, METHODS, settings, plan.rounds, progress)
    record["fresh_tokens_per_step"] = _fresh_heads(engine, prompts, settings, progress)
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


def _count(engine: Engine, prompts: list[list[int]], plan: Plan, watch: Watch) -> Accuracies:
    counted = enumerate(count_heads(engine, prompts, plan.heldout_tokens), start=1)
    for number, found in counted:  # noqa: B007 - the last one counts
        watch(Progress("calibration", number, len(prompts), 0, 0.0))
    return found


def _time(engine: Engine, prompts: list[list[int]], plan: Plan, watch: Watch) -> list[LatencyPoint]:
    tokens = min(_TIMED_TOKENS, plan.heldout_tokens)
    for found in measure_latency(engine, prompts, LATENCY_SIZES, plan.latency_rounds, tokens):
        watch(Progress("latency", found.done, found.total, 0, 0.0))
    return found.latency


def _fresh_heads(
    engine: Engine, prompts: list[list[int]], settings: GenerationConfig, progress: Callable[[str], None]
) -> float:
    """Tokens per step with untrained heads on the same tree: what the fit began with."""
    lm_head = lm_head_weight(engine.target.model)
    blocks = lm_head.new_zeros(medusa_draft(engine).heads.count, 1, lm_head.shape[1], lm_head.shape[1])
    fresh = with_heads(engine, heads=MedusaHeads(blocks, blocks[..., 0].clone(), lm_head.detach()))
    measured = []
    for prompt in prompts:
        measured.append(measure_run(fresh, prompt, settings))
        progress("fresh heads")
    return round(sum(len(m.tokens) for m in measured) / sum(m.steps for m in measured), 3)


def _in_float32(
    config: FitConfig,
    fitted: Path,
    engine: Engine,
    prompts: list[list[int]],
    settings: GenerationConfig,
    progress: Callable[[str], None],
) -> dict:
    """Whether Medusa writes what plain decoding writes, in the dtype in which that can be asked exactly."""
    if engine.target.dtype != torch.float32:
        needed = 4 * (engine.info.parameters + engine.info.draft_parameters)
        free = free_memory(engine.target.output_device)
        if needed > free:
            return {"skipped": f"float32 needs {needed / GIB:.2f} GB, {free / GIB:.2f} GB were free"}
        engine = load_engine(config.load(str(fitted), "float32"))
    record = run_bench(engine, prompts, METHODS, settings, 1, progress)
    return {
        "identical_outputs": record["methods"]["medusa"]["identical_outputs"],
        "max_new_tokens": settings.max_new_tokens,
    }


def _write(file: Path, record: dict) -> None:
    file.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
