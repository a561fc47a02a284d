"""Heads that run, from tensors that were read: on the base's device, in its dtype, checked against it.

K heads · V vocabulary · d hidden size · T positions
"""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError

_OTHER = "they belong to another base, so give --heads made for this one, or --heads none"


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

    Raises MedusaError when hidden size or vocabulary differ, or when there are numbers that are none.
    """
    rows, width = lm_head.shape
    if tensors.width != width:
        raise MedusaError(f"the heads in {source} are {tensors.width} wide, the base model {width}: {_OTHER}")
    if tensors.token_map is not None and int(tensors.token_map.max()) >= rows:
        raise MedusaError(
            f"the heads in {source} know token {int(tensors.token_map.max())}, the base model has {rows}: "
            f"{_OTHER}"
        )
    own = rows if tensors.lm_weight is None else tensors.lm_weight.shape[-2]
    if tensors.token_map is None and own != rows:
        raise MedusaError(f"the heads in {source} know {own} tokens, the base model {rows}: {_OTHER}")
    heads = _in_place(tensors, lm_head).requires_grad_(False).eval()
    _require_finite(heads, tensors, source)
    return heads


def _in_place(tensors: HeadTensors, lm_head: torch.Tensor) -> MedusaHeads:
    """The heads where the LM head is, in its dtype; with the LM head itself where theirs is a copy of it."""
    like = {"device": lm_head.device, "dtype": lm_head.dtype}
    blocks = tensors.block_weight.to(**like), tensors.block_bias.to(**like)
    if tensors.token_map is not None:
        known = tensors.token_map.long().to(lm_head.device)
        return TruncatedHeads(*blocks, _own(tensors).to(**like), known, len(lm_head))
    last = lm_head.detach() if tensors.lm_weight is None else tensors.lm_weight.to(**like)
    if last.ndim == 2 and last.data_ptr() != lm_head.data_ptr():
        # One matrix for all heads: the base's, or else one that each of them has a copy of.
        last = lm_head.detach() if torch.equal(last, lm_head) else _own(tensors).to(**like)
    return MedusaHeads(*blocks, last)


def _require_finite(heads: MedusaHeads, tensors: HeadTensors, source: Path) -> None:
    """Raise MedusaError for NaN or infinity, which would make every guess the same without a word."""
    ours = [heads.block_weight, heads.block_bias, *([] if tensors.lm_weight is None else [heads.lm_weight])]
    if all(map(_is_finite, ours)):
        return
    theirs = [tensors.block_weight, tensors.block_bias, tensors.lm_weight]
    if all(_is_finite(tensor) for tensor in theirs if tensor is not None):
        kind = str(heads.block_weight.dtype).removeprefix("torch.")
        raise MedusaError(
            f"the heads in {source} hold numbers too large for {kind}: use --dtype bfloat16 or float32"
        )
    raise MedusaError(f"the heads in {source} hold NaN or infinity: fetch, convert or train them again")


def _is_finite(tensor: torch.Tensor) -> bool:
    # The extremes carry a NaN along, and unlike isfinite they need no memory of the tensor's size.
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low) & torch.isfinite(high))


def _own(tensors: HeadTensors) -> torch.Tensor:
    """Last layers [K, V, d]."""
    last = tensors.lm_weight
    return last if last.ndim == 3 else last.expand(tensors.count, -1, -1).contiguous()
