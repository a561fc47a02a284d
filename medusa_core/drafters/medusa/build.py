"""Heads that run, from tensors that were read, on the base's device and in its dtype.

K heads · V vocabulary · d hidden size · T positions
"""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.heads import heads_for_base
from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.drafters.medusa.heads import MedusaHeads


class TruncatedHeads(MedusaHeads):
    """Heads that know a part of the vocabulary, as vLLM's ``token_map`` names it: the rest is impossible."""

    token_map: torch.Tensor

    def __init__(
        self,
        block_weight: torch.Tensor,
        block_bias: torch.Tensor,
        lm_weight: torch.Tensor,
        token_map: torch.Tensor,
        vocabulary: int,
    ) -> None:
        """``lm_weight`` has V' rows, ``token_map`` [V'] their tokens, ``vocabulary`` is V."""
        super().__init__(block_weight, block_bias, lm_weight)
        self.register_buffer("token_map", token_map, persistent=False)
        self.vocabulary = vocabulary

    def forward(self, hidden: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """Logits of the ``first`` heads, or of all, −∞ for tokens they do not know: [T, d] → [K, T, V]."""
        known = super().forward(hidden, first)
        logits = known.new_full((*known.shape[:-1], self.vocabulary), -torch.inf)
        return logits.index_copy(-1, self.token_map, known)


def build_heads(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> MedusaHeads:
    """Heads for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ, or when a number is NaN or infinite.
    """
    placed = heads_for_base(tensors, lm_head, source)
    last = lm_head.detach() if placed.lm_weight is None else placed.lm_weight
    blocks = placed.block_weight, placed.block_bias
    heads = (
        MedusaHeads(*blocks, last)
        if placed.token_map is None
        else TruncatedHeads(*blocks, last, placed.token_map, len(lm_head))
    )
    return heads.requires_grad_(False).eval()
