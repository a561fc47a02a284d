"""Heads' tensors made ready for one base: its device and dtype, checked against its LM head.

Needs tensors alone, so that conversion checks what it writes by the same rules as the engine what it runs.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.errors import MedusaError

_OTHER = "they belong to another base, so give --heads made for this one, or --heads none"


def heads_for_base(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> HeadTensors:
    """The tensors for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ, or when there are numbers that are none.
    """
    _require_same_sizes(tensors, lm_head, source)
    placed = _placed(tensors, lm_head)
    _require_finite(placed, tensors, source)
    return placed


def _require_same_sizes(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> None:
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


def _placed(tensors: HeadTensors, lm_head: torch.Tensor) -> HeadTensors:
    return replace(
        tensors,
        block_weight=tensors.block_weight.to(lm_head.device, lm_head.dtype),
        block_bias=tensors.block_bias.to(lm_head.device, lm_head.dtype),
        lm_weight=_last_layers(tensors, lm_head),
        token_map=None if tensors.token_map is None else tensors.token_map.long().to(lm_head.device),
    )


def _last_layers(tensors: HeadTensors, lm_head: torch.Tensor) -> torch.Tensor | None:
    """Last layers [K, V, d]; the LM head itself where theirs is a copy of it; None where they have none."""
    if tensors.lm_weight is None:
        return None
    last = tensors.lm_weight.to(lm_head.device, lm_head.dtype)
    if last.ndim == 3:
        return last
    # One matrix for all heads: the base's, or else one that each of them gets a copy of.
    if tensors.token_map is None and torch.equal(last, lm_head):
        return lm_head.detach()
    return last.expand(tensors.count, -1, -1).contiguous()


def _require_finite(placed: HeadTensors, tensors: HeadTensors, source: Path) -> None:
    """Raise MedusaError for NaN or infinity, which would make every guess the same without a word."""
    if _all_finite(placed):
        return
    if _all_finite(tensors):
        kind = str(placed.block_weight.dtype).removeprefix("torch.")
        raise MedusaError(
            f"the heads in {source} hold numbers too large for {kind}: use --dtype bfloat16 or float32"
        )
    raise MedusaError(f"the heads in {source} hold NaN or infinity: fetch, convert or train them again")


def _all_finite(tensors: HeadTensors) -> bool:
    weights = (tensors.block_weight, tensors.block_bias, tensors.lm_weight)
    return all(_is_finite(tensor) for tensor in weights if tensor is not None)


def _is_finite(tensor: torch.Tensor) -> bool:
    # The extremes carry a NaN along, and unlike isfinite they need no memory of the tensor's size.
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low) & torch.isfinite(high))
