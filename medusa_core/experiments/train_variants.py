"""Train the variants that are missing: Medusa-1, Medusa-2 in two stages, direct fine-tuning.

All see the same text and the same number of training tokens in all; Medusa-2 spends half of them on its first
stage. On text the base wrote itself Medusa-2 learns from the base's own probabilities, as the paper advises
(§2.3.2); the text as a label would harm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError
from medusa_core.experiments.settings import DIRECT, MEDUSA1, MEDUSA2, VariantSettings
from medusa_core.experiments.setup import Setup
from medusa_core.training.config import (
    DirectConfig,
    DrafterConfig,
    Medusa1Config,
    Medusa2Config,
    SelfDistillConfig,
)
from medusa_core.training.recipes import train

ANSWER_TOKENS = 192
PASSES = 2  # about how often a variant sees the text that the base writes
FEWEST_ANSWERS = 32
SHORT_WARMUP = 10  # at most one step in so many warms up


def train_missing(setup: Setup, settings: VariantSettings, names: Sequence[str]) -> dict[str, Path]:
    """Train variants one after the other; an interrupted run is resumed. Raises MedusaError."""
    model = setup.load.model
    own = not settings.data
    data = write_text(setup, settings.runs, settings.tokens) if own else str(setup.data_root / settings.data)
    folders = {}
    for name in names:
        config = variant_config(name, settings, model=model, data=data, own_text=own)
        folders[name] = finished_folder(setup, config)
    return folders


def finished_folder(setup: Setup, config: DrafterConfig) -> Path:
    """Train; the folder of the result. Raises MedusaError where the run was stopped before its end."""
    folder = setup.watch(train(config)).folder
    if folder is None:
        raise MedusaError(f"the training in {config.out} did not finish: run the command again")
    return folder


def write_text(setup: Setup, runs: str, tokens: int) -> str:
    """The folder of text that the base writes, enough for trainings of so many tokens to see it twice."""
    answers = max(FEWEST_ANSWERS, tokens // (ANSWER_TOKENS * PASSES))
    config = SelfDistillConfig(
        model=setup.load.model,
        out=str(Path(runs) / "text"),
        data_root=str(setup.data_root),
        answers=answers,
        answer_tokens=ANSWER_TOKENS,
        train="nothing",
    )
    return str(setup.watch(train(config)).folder)


def variant_config(
    name: str, settings: VariantSettings, *, model: str, data: str, own_text: bool
) -> Medusa1Config:
    """The recipe of a variant: the paper's settings, and as many tokens as every other variant."""
    half = max(1, settings.tokens // 2)
    tokens = half if name == MEDUSA2 else settings.tokens
    common: dict[str, Any] = {
        "model": model,
        "data": data,
        "out": str(Path(settings.runs) / name),
        "tokens": tokens,
        "batch_tokens": settings.batch_tokens,
        "warmup_steps": min(40, max(1, tokens // settings.batch_tokens // SHORT_WARMUP)),
    }
    if name == MEDUSA1:
        return Medusa1Config(**common)
    if name == DIRECT:
        return DirectConfig(**common)
    teacher = "self" if own_text else "text"
    return Medusa2Config(**common, stage1_tokens=settings.tokens - half, teacher=teacher)
