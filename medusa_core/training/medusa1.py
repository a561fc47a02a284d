"""Medusa-1: train heads on a frozen base (paper §2.2.1).

Only the hidden states of the base are needed, so they are computed once a batch without its graph.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.locate import has_adapter
from medusa_core.checkpoints.read import read_heads
from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.medusa.build import TruncatedHeads, build_heads
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import (
    base_folder,
    base_name,
    compile_base,
    load_frozen,
    load_tokenizer,
    read_base,
    uses_bf16,
)
from medusa_core.training.card import write_card
from medusa_core.training.config import DrafterConfig, HeadsConfig, Medusa1Config
from medusa_core.training.data import Batch
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.head_data import Batches, Reading, Scoring, heldout_scores
from medusa_core.training.loop import (
    End,
    Losses,
    Metrics,
    Progress,
    Schedule,
    TrainRun,
    make_accelerator,
    never,
)
from medusa_core.training.losses import head_losses, head_scores, weighted_sum
from medusa_core.training.optimizers import make_optimizers

RESULT = "heads"  # the finished heads' folder inside the run folder


class HeadLosses(torch.nn.Module):
    """The heads as a module whose forward pass is their losses, which is what processes synchronise on."""

    def __init__(self, heads: MedusaHeads) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, hidden: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """Mean loss of every head [K]."""
        return head_losses(self.heads, hidden, tokens, trained)


@dataclass(frozen=True)
class HeadRecipe:
    """What a recipe that trains heads on a frozen base has of its own."""

    losses: torch.nn.Module  # called with ``inputs``, gives the mean loss of every head [K]
    inputs: Callable[[Batch], tuple[Any, ...]]  # the heads' inputs for a batch, computed without a graph
    score: Scoring  # of held-out text
    read: Reading  # of it, for the score
    save: Callable[[Path], None]


def medusa1(config: Medusa1Config, stage: str = "heads", end: End = never) -> Generator[Progress, None, None]:
    """Run the recipe; the last record's ``folder`` holds the finished heads (``<out>/heads``).

    Raises MedusaError for settings, data or a base that cannot be used.
    """

    def recipe(model: PreTrainedModel, device: torch.device) -> HeadRecipe:
        heads = start_heads(config, model).to(device)

        def inputs(batch: Batch) -> tuple[torch.Tensor, ...]:
            hidden = model.base_model(batch.tokens, use_cache=False).last_hidden_state
            return hidden, batch.tokens, batch.trained

        save = partial(save_heads, heads, base=base_name(config))
        return HeadRecipe(
            HeadLosses(heads), inputs, partial(head_scores, heads), partial(read_base, model), save
        )

    yield from train_heads(config, stage, end, recipe)


def train_heads(
    config: HeadsConfig,
    stage: str,
    end: End,
    recipe_of: Callable[[PreTrainedModel, torch.device], HeadRecipe],
) -> Generator[Progress, None, None]:
    """Train the heads of a recipe on a frozen base; the last record's ``folder`` holds them.

    Raises MedusaError for settings, data or a base that cannot be used.
    """
    accelerator = make_accelerator(config)
    device = accelerator.device
    batches = Batches(config, load_tokenizer(base_folder(config)), accelerator)
    model = load_frozen(config, device)
    recipe = recipe_of(model, device)
    if config.compile:
        compile_base(model, device)
    bf16 = uses_bf16(config, device)

    def losses_of(step: int, number: int) -> Losses:
        batch = batches.of(step, number)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            with torch.no_grad():
                inputs = recipe.inputs(batch)
            losses = run.forward(*inputs)
        return {"loss": weighted_sum(losses, config.head_decay)} | each_head(losses)

    def evaluate() -> Metrics:
        return heldout_scores(recipe.score, recipe.read, batches.heldout, device, bf16)

    optimizers = make_optimizers(config, (recipe.losses.named_parameters(), config.learning_rate))
    schedule = Schedule(config.steps, min(config.warmup_steps, config.steps // 2), 1.0, "cosine")
    run = TrainRun(config, recipe.losses, optimizers, schedule, accelerator)
    watch = DivergenceLimit("loss/1", math.log(model.config.get_text_config().vocab_size))
    yield from run.steps(losses_of, evaluate, stage, watch, config.accumulate, end=end)
    folder = run.folder / RESULT
    if accelerator.is_main_process:
        recipe.save(folder)
        write_card(run.folder, config, folder)
    accelerator.wait_for_everyone()
    yield finished(run, config, stage, folder)


def start_heads(config: Medusa1Config, model: PreTrainedModel, *, own_last: bool = False) -> MedusaHeads:
    """Fresh heads for the model, or those the settings go on from; in float32, trainable.

    ``own_last`` gives heads that share the base's LM head one of their own, for a base that will change.
    Raises MedusaError when those do not fit the model or the settings.
    """
    lm_head = cast("torch.Tensor", model.get_output_embeddings().weight).detach().float()
    if not config.start:
        return MedusaHeads.fresh(lm_head, config.heads, config.head_layers)
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
    if has_adapter(folder):
        logging.getLogger(__name__).warning(
            "warning: %s comes with an adapter of its base, which this run starts without", config.start
        )
    if own_last and heads.shares_lm_head:
        last = heads.lm_weight.expand(heads.count, -1, -1).clone()
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, last)
    return heads.requires_grad_(True).train()


def each_head(losses: torch.Tensor) -> Losses:
    """The losses [K] under the names they are logged by."""
    return {f"loss/{head}": value for head, value in enumerate(losses.detach(), start=1)}


def finished(run: TrainRun, config: DrafterConfig, stage: str, folder: Path) -> Progress:
    """The last record of a recipe."""
    return Progress(stage, run.step, config.steps, run.step * config.batch_tokens, 0.0, folder=folder)


def first_stage(config: Medusa1Config) -> Medusa1Config:
    """The settings of Medusa-2's first stage: Medusa-1 in a run folder inside the second's."""
    names = Medusa1Config.__dataclass_fields__
    own = {name: getattr(config, name) for name in names}
    tokens = getattr(config, "stage1_tokens", 0) or config.tokens
    return replace(Medusa1Config(**own), out=str(Path(config.out) / "stage1"), tokens=tokens)
