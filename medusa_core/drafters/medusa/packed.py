"""Medusa heads on a row or a few, with weights laid out for the CPU: what a step of decoding asks for.

The stacked module multiplies by all heads at once, for which torch reorders every weight in every call. Here
the first layer of all heads is one product, since it reads the same hidden state, and each LM head another.
Reading the LM heads' weights is what takes the time, so where each head has its own they are held in 8 bits:
guesses need not be exact, since the target verifies them. Training, measuring and saving keep to the module.

B rows · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.model.products import PACK_LIMIT, Linear, Operators, PackedLinear, packing_that_wins

MOST_ROWS = 4  # from where the stacked module is no slower: 8-bit products cost as much for each further row
_LEVELS = 127  # of a weight in 8 bits, on either side of 0

Product = Callable[[torch.Tensor], torch.Tensor]


class Int8Linear:
    """x [R, d] → [R, V] by a weight in 8 bits with one scale a row, in torch's own kernel for a few rows."""

    def __init__(self, weight: torch.Tensor) -> None:
        wide = weight.float()
        largest = wide.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny)
        self.scales = (largest / _LEVELS).to(weight.dtype)
        steps = (wide / self.scales.float()[:, None]).round()
        self.weight = steps.clamp(-_LEVELS, _LEVELS).to(torch.int8)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales)

    @classmethod
    def runs_here(cls, dtype: torch.dtype) -> bool:
        """Whether this torch has the operator, by a product that it must get right."""
        try:
            return bool(cls(torch.ones(16, 32, dtype=dtype))(torch.ones(1, 32, dtype=dtype)).eq(32).all())
        except (AttributeError, RuntimeError, TypeError):
            return False


class PackedHeads:
    """Called as the heads are: hidden states [B, d] → logits of the ``first`` heads [first, B, V]."""

    def __init__(self, heads: MedusaHeads, operators: Operators | None, *, int8: bool) -> None:
        """``operators`` pack what is not held in 8 bits; None leaves it as it is."""

        def product(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
            linear = Linear(weight, bias)
            return linear if operators is None else PackedLinear(linear, operators)

        weight, bias = heads.block_weight.detach(), heads.block_bias.detach()
        # The input of the first layer is the same for all heads, so they are one product there.
        self._first = product(weight[:, 0].flatten(0, 1), bias[:, 0].flatten())
        self._blocks = [
            [product(weight[head, layer], bias[head, layer]) for layer in range(1, heads.layers)]
            for head in range(heads.count)
        ]
        last = heads.lm_weight.detach()
        shared = [last] if heads.shares_lm_head else list(last)
        self.last_itemsize = torch.int8.itemsize if int8 else last.itemsize  # bytes a number of an LM head
        self._last: list[Product] = [Int8Linear(one) if int8 else product(one) for one in shared]

    def __call__(self, hidden: torch.Tensor, first: int) -> torch.Tensor:
        size = hidden.shape[-1]
        rows = hidden[:, None] + F.silu(self._first(hidden)).view(len(hidden), -1, size)[:, :first]
        heads = [_through(*one) for one in zip(self._blocks, rows.unbind(1), strict=False)]
        if len(self._last) == 1:  # one LM head, which all heads share
            return self._last[0](torch.cat(heads)).view(len(heads), len(hidden), -1)
        return torch.stack([last(row) for last, row in zip(self._last, heads, strict=False)])


def _through(blocks: list[Linear], x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = x + F.silu(block(x))
    return x


def packed_heads(heads: MedusaHeads) -> PackedHeads | None:
    """The heads laid out for a CPU in bfloat16, None where nothing is won or the copies would be too large.

    Float32 stays as it is, since it is asked for to have every number as trained.
    """
    last = heads.lm_weight.detach()
    copies = sum(tensor.nbytes for tensor in (last, heads.block_weight, heads.block_bias))
    if type(heads) is not MedusaHeads or not heads.layers or copies > PACK_LIMIT:
        return None
    if last.dtype != torch.bfloat16 or last.device.type != "cpu":
        return None
    # One row a weight is where 8 bits are faster; by a shared LM head go the rows of all heads.
    int8 = not heads.shares_lm_head and Int8Linear.runs_here(last.dtype)
    operators = packing_that_wins(Linear(last if heads.shares_lm_head else last[0]))
    return PackedHeads(heads, operators, int8=int8) if int8 or operators is not None else None
