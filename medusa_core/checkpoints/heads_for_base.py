"""Heads' tensors made ready for one base: its device and dtype, checked against its LM head.

Needs tensors alone, so that conversion checks what it writes by the same rules as the engine what it runs.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from medusa_core.checkpoints.files import require_finite
from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.errors import MedusaError

_OTHER = "they belong to another base, so give --heads made for this one, or --heads none"


def heads_for_base(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> HeadTensors:
    """The tensors for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ, or when there are numbers that are none.
    """
    _require_same_sizes(tensors, lm_head, source)
    placed = _placed(tensors, lm_head)
    require_finite(source, _weights(placed), _weights(tensors), placed.block_weight.dtype)
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


def _weights(tensors: HeadTensors) -> Iterator[torch.Tensor]:
    yield from (tensors.block_weight, tensors.block_bias)
    if tensors.lm_weight is not None:
        yield tensors.lm_weight
