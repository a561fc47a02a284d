"""Heads that run, from tensors that were read: on the base's device, in its dtype, checked against it.

K heads · V vocabulary · d hidden size · T positions
"""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.errors import MedusaError
from medusa_core.heads import MedusaHeads


class TruncatedHeads(MedusaHeads):
    """Heads that know a part of the vocabulary, as vLLM's ``token_map`` names it: the rest is impossible."""

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

    Raises MedusaError when hidden size or vocabulary differ.
    """
    rows, width = lm_head.shape
    if tensors.width != width:
        raise MedusaError(
            f"the heads in {source} are {tensors.width} wide, the base model {width}: "
            "they belong to another base"
        )
    like = {"device": lm_head.device, "dtype": lm_head.dtype}
    blocks = tensors.block_weight.to(**like), tensors.block_bias.to(**like)
    if tensors.token_map is not None:
        known = tensors.token_map.long()
        if int(known.max()) >= rows:
            raise MedusaError(
                f"the heads in {source} know token {int(known.max())}, the base model has {rows}: "
                "they belong to another base"
            )
        last = _own(tensors).to(**like)
        heads = TruncatedHeads(*blocks, last, known.to(lm_head.device), rows)
        return heads.requires_grad_(False).eval()
    own = rows if tensors.lm_weight is None else tensors.lm_weight.shape[-2]
    if own != rows:
        raise MedusaError(
            f"the heads in {source} know {own} tokens, the base model {rows}: they belong to another base"
        )
    last = lm_head.detach() if tensors.lm_weight is None else tensors.lm_weight.to(**like)
    if last.ndim == 2 and last.data_ptr() != lm_head.data_ptr():
        # One matrix for all heads: the base's, or else one that each of them has a copy of.
        last = lm_head.detach() if torch.equal(last, lm_head) else _own(tensors).to(**like)
    return MedusaHeads(*blocks, last).requires_grad_(False).eval()


def _own(tensors: HeadTensors) -> torch.Tensor:
    """Last layers [K, V, d]."""
    last = tensors.lm_weight
    return last if last.ndim == 3 else last.expand(tensors.count, -1, -1).contiguous()
