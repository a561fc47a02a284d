"""Tiny random TokenSwift heads, and drafting by them slowly and obviously."""

from __future__ import annotations

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from medusa_core.drafters.tokenswift.draft import TokenSwiftDraft
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.engine import Engine

HEADS = 3


def random_tokenswift(model: PreTrainedModel, count: int = HEADS, seed: int = 0) -> TokenSwiftHeads:
    """Heads with random weights, norms among them."""
    lm_head, norm = model.get_output_embeddings().weight, model.model.norm.weight
    heads = TokenSwiftHeads.fresh(lm_head, norm, count, model.config.rms_norm_eps)
    generator = torch.Generator().manual_seed(seed)
    for parameter in heads.parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.2
    return heads.requires_grad_(False).eval()


def with_tokenswift(engine: Engine) -> Engine:
    """The engine with such heads beside its other drafters."""
    draft = TokenSwiftDraft(random_tokenswift(engine.target.model))
    return replace(engine, drafts={**engine.drafts, "tokenswift": draft})


@torch.no_grad()
def hidden_before_norm(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """[B, T, d]: the output of the last layer, taken from the layer itself."""
    kept = []
    hook = model.model.layers[-1].register_forward_hook(lambda _, __, output: kept.append(output))
    model(tokens, use_cache=False)
    hook.remove()
    return kept[0]


@torch.no_grad()
def slow_guesses(heads: TokenSwiftHeads, hidden: torch.Tensor, model: PreTrainedModel) -> list[torch.Tensor]:
    """Logits [V] of the model and of one head after the other, from a hidden state [d]."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * x / (x.pow(2).mean() + model.config.rms_norm_eps).sqrt()

    lm_head = model.get_output_embeddings().weight
    found = [lm_head @ norm(hidden, model.model.norm.weight)]
    for head in range(heads.count):
        hidden = hidden + heads.linear[head] @ norm(hidden, heads.before[head])
        found.append(lm_head @ norm(hidden, heads.after[head]))
    return found
