"""Medusa-1: train heads on a frozen base (paper §2.2.1).

Only the hidden states of the base are needed, so they are computed once a batch without its graph.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.locate import has_adapter
from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.medusa.files import build_heads, save_heads
from medusa_core.drafters.medusa.heads import MedusaHeads, TruncatedHeads
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import base_name, compile_base, frozen_head, load_frozen, read_base
from medusa_core.training.config import HeadsConfig, Medusa1Config
from medusa_core.training.data import Batch
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.drafter_run import DrafterRun, Recipe, Scoring, each_loss, recipe
from medusa_core.training.loop import Losses
from medusa_core.training.losses import HeadScores, head_losses, predictions, scores_of, weighted_sum


class HeadLosses(torch.nn.Module):
    """The heads as a module whose forward pass is their losses, which is what processes synchronise on."""

    def __init__(self, heads: torch.nn.Module, losses: Callable[..., torch.Tensor]) -> None:
        """``losses`` takes the heads and what the module is called with."""
        super().__init__()
        self.heads = heads
        self._losses = losses

    def forward(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        """Mean loss of every head [K]."""
        return self._losses(self.heads, *inputs)


@dataclass(frozen=True)
class HeadRecipe:
    """The parts in which recipes that train heads on a frozen base differ."""

    stage: str
    losses: torch.nn.Module  # called with ``inputs``, gives the mean loss of every head [K]
    inputs: Callable[[Batch], tuple[Any, ...]]  # the heads' inputs for a batch, computed without a graph
    score: Scoring
    save: Callable[[Path], None]


@recipe
def medusa1(config: Medusa1Config, run: DrafterRun) -> Recipe:
    """Heads that each learn a later token of the text."""
    model = load_frozen(config, run.device)
    heads = start_heads(config, model).to(run.device)

    def inputs(batch: Batch) -> tuple[torch.Tensor, ...]:
        hidden = model.base_model(batch.tokens, use_cache=False).last_hidden_state
        return hidden, batch.tokens, batch.trained

    save = partial(save_heads, heads, base=base_name(config))
    score = partial(score_heads, model, heads)
    parts = HeadRecipe("heads", HeadLosses(heads, head_losses), inputs, score, save)
    return heads_recipe(config, run, model, parts)


def score_heads(
    model: PreTrainedModel | PeftModel, heads: MedusaHeads, batch: Batch
) -> tuple[HeadScores, torch.Tensor]:
    """Scores of Medusa heads on what the model makes of held-out text."""
    hidden, logits = read_base(model, batch.tokens)
    return scores_of(predictions(heads, hidden, batch.tokens, batch.trained)), logits


def heads_recipe(config: HeadsConfig, run: DrafterRun, model: PreTrainedModel, heads: HeadRecipe) -> Recipe:
    """The recipe for heads on the frozen base ``model``."""
    if config.compile:
        compile_base(model, run.device)

    def losses(forward: Any, batch: Batch, _: int) -> Losses:
        with torch.no_grad():
            inputs = heads.inputs(batch)
        found = forward(*inputs)
        return {"loss": weighted_sum(found, config.head_decay)} | each_loss(found)

    return Recipe(
        heads.stage,
        heads.losses,
        losses,
        heads.score,
        [(heads.losses.named_parameters(), config.learning_rate)],
        heads.save,
        DivergenceLimit("loss/1", math.log(model.config.get_text_config().vocab_size)),
    )


def start_heads(config: Medusa1Config, model: PreTrainedModel, *, own_last: bool = False) -> MedusaHeads:
    """Fresh heads for the model, or those the settings go on from; in float32, trainable.

    ``own_last`` gives heads that share the base's LM head one of their own, for a base that will change.
    Raises MedusaError when those do not fit the model or the settings.
    """
    lm_head = frozen_head(model).float()
    if not config.start:
        return MedusaHeads.fresh(lm_head, config.heads, config.head_layers, shared=config.lm_head == "base")
    folder = locate_heads(config.start)
    heads = build_heads(read_heads(folder), lm_head, folder)
    if isinstance(heads, TruncatedHeads):
        raise MedusaError(
            f"{config.start} knows {heads.lm_weight.shape[-2]} of the base's {heads.vocabulary} tokens, and "
            "training needs all: leave out --start"
        )
    if (heads.count, heads.layers) != (config.heads, config.head_layers):
        raise MedusaError(
            f"{config.start} has {heads.count} heads of {heads.layers} layers, the settings ask for "
            f"{config.heads} of {config.head_layers}: set --heads and --head-layers to what it has"
        )
    if config.lm_head == "base" and not heads.shares_lm_head:
        raise MedusaError(f"the heads of {config.start} have LM heads of their own: use --lm-head own")
    if has_adapter(folder):
        logging.getLogger(__name__).warning(
            "warning: %s comes with an adapter of its base, which this run starts without", config.start
        )
    if own_last and heads.shares_lm_head:
        last = heads.lm_weight.expand(heads.count, -1, -1).clone()
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, last)
    return heads.requires_grad_(True).train()
