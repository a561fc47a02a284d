"""The whole fit: plan, answers, training, calibration, tree, measurement, result. Every stage is done once.

A stage that is finished is noted in ``done.json``, so the same command again goes on with the next; a stage
that was interrupted resumes where its own files say. Paper §2.2.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.loading.model_size import ModelSize, model_size
from medusa_core.training.base_model import base_folder, load_tokenizer
from medusa_core.training.config import Medusa1Config
from medusa_core.training.drafter_run import RESULT
from medusa_core.training.encoding import end_token
from medusa_core.training.fit import prompts, stages
from medusa_core.training.fit.measuring import load_result, measure, write_result
from medusa_core.training.fit.memory import StageMemory, fitting_pass
from medusa_core.training.fit.plan import Plan, first_plan, read_plan, size_plan, write_plan
from medusa_core.training.fit.probe import OnProgress, probe
from medusa_core.training.fit.report import REPORT, make_report, write_card
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.loop import Progress
from medusa_core.training.recipes import train
from medusa_core.training.run_folder import RESULT as RESULT_FILE
from medusa_core.training.run_folder import heldout_mean, read_record, result_of, write_record
from medusa_core.training.self_distill import ANSWERS, self_distill

DONE = "done.json"
FITTED = "fitted"


@dataclass(frozen=True)
class Prepared:
    """What is known before a fit starts: its numbers, its memory by stage, and what is free of it."""

    plan: Plan
    shape: ModelSize
    memory: list[StageMemory]
    free: int
    resumed: bool
    notes: list[str]


def prepare(config: FitConfig, watch: OnProgress) -> Prepared:
    """Check everything that can be checked, probe the machine, and write the plan; or read an earlier one.

    Raises MedusaError for a model, prompts or an amount of memory with which no fit is possible.
    """
    folder = Path(config.out)
    base = base_folder(config.model)
    tokenizer = load_tokenizer(base)
    end_token(tokenizer)  # raises when no text could be ended
    shape = model_size(base)
    begun = (folder / ANSWERS).is_dir()
    plan = read_plan(folder, config, begun=begun)
    if begun and plan is None:
        raise MedusaError(f"{folder} holds answers of something else than a fit: choose another --out")
    first = plan or first_plan(config, shape.width, shape.context)
    # A fit that goes on keeps its passes, so that its training goes on with the same batches.
    shortest = first.sequence_length if plan is None else first.pass_tokens
    passes, memory, free = fitting_pass(config, shape, shortest, first.pass_tokens)
    if plan is None:
        first = replace(first, pass_tokens=passes)
        shutil.rmtree(folder / prompts.PROMPTS, ignore_errors=True)
        (folder / prompts.HELDOUT).unlink(missing_ok=True)
        if config.prompts:
            path = Path(config.prompts).expanduser()
            heldout = prompts.split_prompts(path, tokenizer, folder, first.prompt_tokens, config.seed)
            prompts.write_heldout(folder / prompts.HELDOUT, heldout)
        plan = size_plan(first, config, probe(config, first, folder, watch))
        write_plan(folder, config, plan)
    notes = []
    if tokenizer.chat_template and not config.prompts and not stages.is_embedded(config):
        notes.append("the model has a chat template: --prompts with what you will ask gives better heads")
    if plan.total_seconds > 90 * config.minutes:
        notes.append(
            f"{config.minutes:g} minutes are short for this model here: the smallest useful fit takes longer"
        )
    return Prepared(plan, shape, memory, free, begun, notes)


def run_fit(config: FitConfig, prepared: Prepared, watch: OnProgress) -> dict:
    """Do what is not done yet and return the report, which is also in ``<out>/fitted/report.json``.

    ``watch`` is called with the progress of every stage; what it raises stops the fit, and checkpoints are
    saved. Raises MedusaError as the recipes do.
    """
    folder, plan = Path(config.out), prepared.plan
    fitted = folder / FITTED
    recipes: dict[str, Medusa1Config] = {"heads": stages.head_config(config, plan, folder)}
    if config.joint:
        heads = folder / stages.HEADS_RUN / RESULT
        recipes["heads and adapter"] = stages.joint_config(config, plan, folder, heads)

    def calibrate() -> None:
        last = list(recipes.values())[-1]
        trained = Path(last.out) / RESULT
        engine = load_result(last, trained, config.load())
        write_result(trained, engine, _heldout(config, plan, engine, folder), plan, fitted, watch)

    def report() -> None:
        if not fitted.is_dir():
            raise MedusaError(f"{fitted} is missing: {_again(folder, 'calibration')}")
        measured = measure(config, plan, fitted, prompts.read_heldout(folder / prompts.HELDOUT), watch)
        if stages.is_embedded(config):
            measured["model"]["base"] = "the embedded model"
        write_card(make_report(config, plan, fitted, measured, _training(config, recipes)), fitted)

    parts: dict[str, Callable[[], None]] = {
        "answers": partial(_consume, self_distill(stages.answer_config(config, plan)), watch)
    }
    parts |= {name: partial(_consume, train(recipe), watch) for name, recipe in recipes.items()}
    parts |= {"calibration": calibrate, "measuring": report}
    for name, work in parts.items():
        _once(folder / DONE, name, work)
    return read_record(fitted / REPORT, _again(folder, "measuring"))


def _again(folder: Path, stage: str) -> str:
    """The fix for a stage whose file is damaged."""
    return f"take {stage!r} out of {folder / DONE} to do that stage again, or choose another --out"


def _once(file: Path, stage: str, work: Callable[[], None]) -> None:
    """Do a stage unless it is noted as done, and note it with its seconds."""
    done = (
        read_record(file, "delete it to do all stages again, or choose another --out")
        if file.exists()
        else {}
    )
    if stage in done:
        return
    started = time.perf_counter()
    work()
    done[stage] = round(time.perf_counter() - started, 1)
    write_record(file, done)


def _consume(records: Generator[Progress, None, None], watch: OnProgress) -> None:
    """Run a recipe to its end; closed, it saves a checkpoint."""
    with closing(records):
        for record in records:
            watch(record)


def _heldout(config: FitConfig, plan: Plan, engine: Engine, folder: Path) -> prompts.HeldOut:
    file = folder / prompts.HELDOUT
    if not file.is_file():
        heldout = prompts.heldout_of(
            engine,
            folder / ANSWERS,
            plan.heldout_prompts,
            plan.prompt_tokens,
            config.seed,
            embedded=stages.is_embedded(config),
        )
        prompts.write_heldout(file, heldout)
    return prompts.read_heldout(file)


def _training(config: FitConfig, recipes: dict[str, Medusa1Config]) -> dict:
    """What was trained and on what, from the runs' own files."""
    folder, results = Path(config.out), []
    for stage, recipe in recipes.items():
        if (result := result_of(Path(recipe.out))) is None:
            file = Path(recipe.out) / RESULT_FILE
            raise MedusaError(f"{file} is missing or damaged: {_again(folder, stage)}")
        results.append(result)
    answers = sum(len(file.read_bytes().splitlines()) for file in (folder / ANSWERS).glob("*.jsonl"))
    record: dict[str, Any] = {
        "answers": answers,
        "tokens": sum(result["tokens"] for result in results),
        "prompts": f"after prompts of {Path(config.prompts).name}"
        if config.prompts
        else "from beginnings of its own",
    }
    if config.joint:
        before, after = (heldout_mean(result, "/base") for result in results)
        record["base_loss"] = {"before": before, "after": after}
    return record
