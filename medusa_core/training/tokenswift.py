"""TokenSwift: train heads in a chain on a frozen base and its LM head. Paper §2.2, §4.1.

A recipe on the loop that Medusa-1 has. The first head reads what the base's final norm reads, each further
one the state of the head before; head i, from 0, at position t learns token t + i + 2 of the text.

B windows · T tokens of a window · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.tokenswift.files import epsilon_of, read_heads, save_heads
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.errors import MedusaError
from medusa_core.model.recording import final_norm, states_before_norm
from medusa_core.training.base_model import base_name, frozen_head, load_frozen
from medusa_core.training.config import TokenSwiftConfig
from medusa_core.training.data import Batch
from medusa_core.training.drafter_run import DrafterRun, Recipe, recipe
from medusa_core.training.losses import HeadScores, mean_losses, scores_of
from medusa_core.training.medusa1 import HeadLosses, HeadRecipe, heads_recipe


def predictions(
    heads: TokenSwiftHeads, hidden: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [n, V] and targets [n] of one head after the other, over the positions that count for it.

    ``hidden`` [B, T, d] is what the base's final norm reads of ``tokens`` [B, T]. The logits of one head at a
    time, because those of all of them would take K times the memory.
    """
    for head, state in enumerate(heads.states(hidden.float())):
        shift = head + 2
        counted = trained[:, shift:]
        yield heads.logits(head, state[:, :-shift][counted]).float(), tokens[:, shift:][counted]


@recipe
def tokenswift(config: TokenSwiftConfig, run: DrafterRun) -> Recipe:
    """Heads that each go on from the state of the one before."""
    model = load_frozen(config, run.device)
    heads = start_heads(config, model).to(run.device)

    def inputs(batch: Batch) -> tuple[torch.Tensor, ...]:
        with states_before_norm(model) as states:
            model.base_model(batch.tokens, use_cache=False)
        return states[0], batch.tokens, batch.trained

    def score(batch: Batch) -> tuple[HeadScores, torch.Tensor]:
        with states_before_norm(model) as states:
            logits = model(batch.tokens, use_cache=False).logits
        return scores_of(predictions(heads, states[0], batch.tokens, batch.trained)), logits

    losses = HeadLosses(heads, lambda *given: mean_losses(predictions(*given)))
    save = partial(save_heads, heads, base=base_name(config))
    parts = HeadRecipe("tokenswift", losses, inputs, score, save)
    return heads_recipe(config, run, model, parts)


def start_heads(config: TokenSwiftConfig, model: PreTrainedModel) -> TokenSwiftHeads:
    """Fresh heads for the model, or those the settings go on from; in float32, trainable.

    Raises MedusaError when those do not fit the model or the settings.
    """
    text = model.config.get_text_config(decoder=True)
    lm_head = frozen_head(model).float()
    if not config.start:
        norm = cast("torch.Tensor", final_norm(model).weight)
        return TokenSwiftHeads.fresh(lm_head, norm, config.heads, epsilon_of(text))
    heads = read_heads(locate_heads(config.start), lm_head, text)
    if heads.count != config.heads:
        raise MedusaError(
            f"{config.start} has {heads.count} heads, the settings ask for {config.heads}: set --heads to "
            "what it has"
        )
    return heads.requires_grad_(True).train()
