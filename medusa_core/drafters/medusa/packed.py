"""Medusa heads on one row, with their weights packed for oneDNN: what a step of decoding asks for.

The stacked module multiplies by all heads at once, for which torch reorders every weight in every call. Here
the first layer of all heads is one packed product, since it reads the same hidden state, and each LM head
another. Training, measuring and saving keep to the module.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.target.products import PACK_LIMIT, Linear, Operators, PackedLinear, packing_that_wins


class PackedHeads:
    """Called as the heads are: a hidden state [1, d] → logits of the ``first`` heads [first, 1, V]."""

    def __init__(self, heads: MedusaHeads, operators: Operators) -> None:
        weight, bias = heads.block_weight.detach(), heads.block_bias.detach()
        # The input of the first layer is the same for all heads, so they are one product there.
        self._first = PackedLinear(Linear(weight[:, 0].flatten(0, 1), bias[:, 0].flatten()), operators)
        self._blocks = [
            [
                PackedLinear(Linear(weight[head, layer], bias[head, layer]), operators)
                for layer in range(1, heads.layers)
            ]
            for head in range(heads.count)
        ]
        last = heads.lm_weight.detach()
        shared = [last] if heads.shares_lm_head else list(last)
        self._last = [PackedLinear(Linear(one), operators) for one in shared]

    def __call__(self, hidden: torch.Tensor, first: int) -> torch.Tensor:
        rows = hidden + F.silu(self._first(hidden)).view(-1, hidden.shape[-1])[:first]
        heads = [_through(blocks, row[None]) for blocks, row in zip(self._blocks, rows, strict=False)]
        if len(self._last) == 1:  # one LM head, which all heads share
            return self._last[0](torch.cat(heads))[:, None]
        return torch.stack([last(row) for last, row in zip(self._last, heads, strict=False)])


def _through(blocks: list[PackedLinear], x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = x + F.silu(block(x))
    return x


def packed_heads(heads: MedusaHeads) -> PackedHeads | None:
    """The heads packed, None where that is no faster or their copies would be too large."""
    last = heads.lm_weight.detach()
    copies = sum(tensor.nbytes for tensor in (last, heads.block_weight, heads.block_bias))
    if type(heads) is not MedusaHeads or not heads.layers or copies > PACK_LIMIT:
        return None
    operators = packing_that_wins(Linear(last if heads.shares_lm_head else last[0]))
    return PackedHeads(heads, operators) if operators is not None else None
