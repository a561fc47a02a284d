"""Hydra: train sequentially dependent heads on a frozen base, the base's distribution as teacher. Paper §4.

A recipe on the loop that Medusa-1 has: hidden states and logits of the base are computed once a batch without
its graph. Head k at position t sees the hidden state of t and the tokens t + 1 … t + k, and learns what the
base says of token t + k + 1, which it has read by then: that is why no text has to be labelled anew.

B windows · T tokens of a window · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.files import read_config
from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.hydra.files import read_state, save_heads
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.hydra.layout import Arch, Kind, from_public, kind_of
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import base_name, frozen_head, load_frozen, read_base
from medusa_core.training.config import HydraConfig
from medusa_core.training.data import Batch
from medusa_core.training.drafter_run import DrafterRun, Recipe, recipe
from medusa_core.training.losses import HeadScores, mean_divergence, mean_losses, scores_of
from medusa_core.training.medusa1 import HeadLosses, HeadRecipe, heads_recipe


def head_losses(
    heads: HydraHeads,
    hidden: torch.Tensor,
    embedded: torch.Tensor,
    tokens: torch.Tensor,
    trained: torch.Tensor,
    teacher: torch.Tensor | None,
) -> torch.Tensor:
    """Mean loss of every head [K]: from the teacher's logits [B, T, V], or from the text without them."""
    predicted = predictions(heads, hidden, embedded, tokens, trained)
    if teacher is None:
        return mean_losses(predicted)
    return torch.stack(
        [
            mean_divergence(logits, teacher[:, head + 1 : -1][trained[:, head + 2 :]])
            for head, (logits, _) in enumerate(predicted)
        ]
    )


def predictions(
    heads: HydraHeads,
    hidden: torch.Tensor,
    embedded: torch.Tensor,
    tokens: torch.Tensor,
    trained: torch.Tensor,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [n, V] and targets [n] of one head after the other, over the positions that count for it.

    ``hidden`` and ``embedded`` [B, T, d] are the base's last hidden states and embeddings of ``tokens``
    [B, T]. One head at a time, because the logits of all of them would take K times the memory.
    """
    states = hidden if heads.prefix is None else heads.prefix(hidden)
    for head in range(heads.count):
        counted = trained[:, head + 2 :]
        inputs = heads.inputs(head, states, embedded)[counted]
        yield heads(head, inputs).float(), tokens[:, head + 2 :][counted]


@recipe
def hydra(config: HydraConfig, run: DrafterRun) -> Recipe:
    """Heads that each read the tokens drafted before them."""
    model = load_frozen(config, run.device)
    embedding = model.get_input_embeddings()
    heads = start_heads(config, model).to(run.device)

    def inputs(batch: Batch) -> tuple[torch.Tensor | None, ...]:
        hidden, logits = read_base(model, batch.tokens)
        teacher = logits if config.learn_from == "base" else None
        return hidden, embedding(batch.tokens), batch.tokens, batch.trained, teacher

    def score(batch: Batch) -> tuple[HeadScores, torch.Tensor]:
        hidden, logits = read_base(model, batch.tokens)
        embedded = embedding(batch.tokens)
        return scores_of(predictions(heads, hidden, embedded, batch.tokens, batch.trained)), logits

    def save(folder: Path) -> None:
        save_heads(heads, folder, base_name(config), cast("torch.Tensor", embedding.weight), torch.bfloat16)

    parts = HeadRecipe("hydra", HeadLosses(heads, head_losses), inputs, score, save)
    return heads_recipe(config, run, model, parts)


def start_heads(config: HydraConfig, model: PreTrainedModel) -> HydraHeads:
    """Fresh heads for the model, or those the settings go on from; in float32, trainable.

    Raises MedusaError when those do not fit the model or the settings.
    """
    torch.manual_seed(config.seed)  # the prefix layer starts random
    text = model.config.get_text_config(decoder=True)
    lm_head = frozen_head(model).float()
    wanted = Kind(Arch.PREFIX_MLP if config.prefix else Arch.MLP, config.heads, config.head_layers)
    if not config.start:
        heads = HydraHeads.fresh(lm_head, wanted.heads, wanted.layers, text if config.prefix else None)
        return _trainable(heads, config, lm_head)
    folder = locate_heads(config.start)
    kind = kind_of(read_config(folder), str(folder))
    if kind != wanted:
        raise MedusaError(
            f"{config.start} has {kind.heads} heads of {kind.layers} layers and the kind {kind.arch}, the "
            f"settings ask for {wanted.heads} of {wanted.layers} and {wanted.arch}: set --heads, "
            "--head-layers and --prefix to what it has"
        )
    heads = from_public(read_state(folder), kind, text, str(folder)).float()
    if heads.vocabulary != len(lm_head):
        raise MedusaError(
            f"{config.start} knows {heads.vocabulary} tokens, the base model {len(lm_head)}: it belongs to "
            "another base, so leave out --start"
        )
    return _trainable(heads, config, lm_head)


def _trainable(heads: HydraHeads, config: HydraConfig, lm_head: torch.Tensor) -> HydraHeads:
    """All weights trainable but LM heads that are to be the base's. Raises MedusaError where they are not."""
    heads.requires_grad_(True).train()
    if config.lm_head == "base":
        for number in range(heads.count):
            last = heads.head(number).last
            if not torch.equal(last.weight, lm_head) or bool(last.bias.any()):
                raise MedusaError(
                    f"head {number + 1} of {config.start} has an LM head of its own: use --lm-head own"
                )
            last.requires_grad_(False)
    return heads
