"""What the recipes for drafters share: the text, the loop around their own losses, held-out scores, the end.

B windows · T tokens of a window · K heads, or steps of a draft layer
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import torch

from medusa_core.errors import MedusaError
from medusa_core.training.base_model import base_folder, load_tokenizer, uses_bf16
from medusa_core.training.card import write_card
from medusa_core.training.config import DrafterConfig
from medusa_core.training.data import Batch, load_data
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.loop import End, Losses, Metrics, Progress, Schedule, TrainRun, make_accelerator
from medusa_core.training.losses import HeadScores, next_token_loss
from medusa_core.training.optimizers import Named, make_optimizers

RESULT = "heads"  # the finished drafter's folder inside the run folder
EVALUATION_ROWS = 8  # windows of a forward pass while evaluating
V = TypeVar("V")
# Scores of all guessers on a batch, and the base's logits [B, T, V] of its tokens.
Scoring = Callable[[Batch], tuple[HeadScores, torch.Tensor]]


@dataclass(frozen=True)
class Recipe:
    """The parts in which recipes differ."""

    stage: str
    module: torch.nn.Module  # its forward pass is the losses, which is what processes synchronise on
    losses: Callable[[Any, Batch, int], Losses]  # (forward, batch, step); "loss" is minimised
    score: Scoring  # of held-out text
    weights: list[tuple[Named, float]]  # parts of named weights with their peak rates
    save: Callable[[Path], None]
    watch: DivergenceLimit
    clip: float = 1.0  # limit of the gradient's norm
    folder: str = RESULT
    guesser: tuple[str, str] = ("head", "the token that stands in the text")  # the card's words


class DrafterRun:
    """A run that trains a drafter: its processes, its text and how it computes, before the base is read."""

    def __init__(self, config: DrafterConfig) -> None:
        """Reads or caches the text. Raises MedusaError for settings or data that cannot be used."""
        self.config = config
        self.accelerator = make_accelerator(config)
        self.device = self.accelerator.device
        parts = config.accumulate * self.accelerator.num_processes
        self._rows, rest = divmod(config.batch_tokens, config.sequence_length * parts)
        if rest or not self._rows:
            raise MedusaError(
                f"a batch of {config.batch_tokens} tokens is not a multiple of {parts} passes over windows "
                f"of {config.sequence_length}: set --batch-tokens to a multiple of "
                f"{config.sequence_length * parts}"
            )
        # One process writes the cache of encoded text, the others read it.
        with self.accelerator.main_process_first():
            self.data = load_data(config, load_tokenizer(base_folder(config.model)))

    def batch(self, step: int, number: int) -> Batch:
        """This process's windows of forward pass ``number`` of a step; all together are the step's batch."""
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        index = (step * self.config.accumulate + number) * processes + rank
        return self.data.mixture.batch(index, self._rows).to(self.device)

    def train(self, recipe: Recipe, end: End) -> Generator[Progress, None, None]:
        """Take the steps of a recipe; the last record's ``folder`` holds what it learned."""
        config, device = self.config, self.device
        bf16 = uses_bf16(config.precision, device)

        def losses_of(step: int, number: int) -> Losses:
            batch = self.batch(step, number)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                return recipe.losses(run.forward, batch, step)

        def evaluate() -> Metrics:
            return heldout_scores(recipe.score, self.data.heldout, device, bf16=bf16)

        optimizers = make_optimizers(config, *recipe.weights)
        schedule = Schedule(config.steps, min(config.warmup_steps, config.steps // 2), 1.0, "cosine")
        run = TrainRun(config, recipe.module, optimizers, schedule, self.accelerator)
        yield from run.steps(losses_of, evaluate, recipe.stage, recipe.watch, recipe.clip, end)
        folder = run.folder / recipe.folder
        if self.accelerator.is_main_process:
            recipe.save(folder)
            write_card(run.folder, config, folder, *recipe.guesser)
        self.accelerator.wait_for_everyone()
        tokens = run.step * config.batch_tokens
        yield Progress(recipe.stage, run.step, config.steps, tokens, 0.0, folder=folder)


def recipe(make: Callable[[Any, DrafterRun], Recipe]) -> Callable[..., Generator[Progress, None, None]]:
    """Turn a function that makes the recipe of a run into the training itself.

    Raises MedusaError for settings, data or a base that cannot be used.
    """

    @wraps(make)
    def training(config: DrafterConfig, end: End) -> Generator[Progress, None, None]:
        run = DrafterRun(config)
        yield from run.train(make(config, run), end)

    return training


@torch.no_grad()
def heldout_scores(score: Scoring, heldout: dict[str, Batch], device: torch.device, *, bf16: bool) -> Metrics:
    """Per kind of text: the base's loss, and each guesser's loss and hit rates, over all held-out tokens."""
    metrics: Metrics = {}
    for kind, windows in heldout.items():
        scores: list[HeadScores] = []
        losses: list[torch.Tensor] = []
        counts: list[torch.Tensor] = []
        for tokens, trained in zip(
            windows.tokens.split(EVALUATION_ROWS), windows.trained.split(EVALUATION_ROWS), strict=True
        ):
            batch = Batch(tokens, trained).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                found, logits = score(batch)
            scores.append(found)
            losses.append(next_token_loss(logits, batch.tokens, batch.trained))
            counts.append(batch.trained[:, 1:].sum())
        metrics[f"heldout/{kind}/base"] = float(_mean_of_all(losses, counts))
        for name in ("loss", "top1", "top5"):
            means = [getattr(found, name) for found in scores]
            of_all = _mean_of_all(means, [found.count for found in scores])
            metrics |= numbered(f"heldout/{kind}/{name}", of_all.tolist())
    return metrics


def _mean_of_all(means: list[torch.Tensor], counts: list[torch.Tensor]) -> torch.Tensor:
    """One mean of the ``means`` over ``counts`` tokens each: answers differ in length from batch to batch."""
    weights = torch.stack(counts).float()
    return (torch.stack(means) * weights).sum(dim=0) / weights.sum(dim=0).clamp(min=1)


def each_loss(losses: torch.Tensor) -> Losses:
    """The losses [K] under the names they are logged by."""
    return numbered("loss", losses.detach())


def numbered(name: str, values: Iterable[V]) -> dict[str, V]:
    """One metric a guesser, numbered from 1."""
    return {f"{name}/{number}": value for number, value in enumerate(values, start=1)}
