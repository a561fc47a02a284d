"""Linears with weight matrices: torch's own, or oneDNN's with weights packed once, not in each call.

In bfloat16 on x86 torch reorders a weight into oneDNN's blocked layout in every call, which for a few rows
costs more than the product. Packed once, the same kernel gives the same bits. Both operators are private
names of torch: they are looked up, tried and timed when a model loads; where that fails the product is
torch's own.

rows R · inputs I · outputs O
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from medusa_core.model.exact_attention import MOST_ROWS

PACK_LIMIT = 512 * 2**20  # bytes of packed copies: beyond it reading the weights is what takes the time
_ROWS = 16  # a pack made for so many rows serves any number
_TIMED_CALLS = 5
# Rows of a verified tree. Kernels change with full and cut tiles of 8, 16 or 32 rows.
_TRIED_ROWS = (
    2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 48, 63, 64, 65, 127, 128, 129, 256,
)  # fmt: skip
_BLOCKS = (8, 16, 32, 64, 128, MOST_ROWS)


class Linear:
    """x [R, I] → [R, O] by a weight [O, I] and a bias [O]; at most ``rows`` rows at once where it is set."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, rows: int | None = None
    ) -> None:
        self.weight = weight
        self.shape = weight.shape
        self.bias = bias
        self.rows = rows

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.rows is None or not self.rows < x.shape[0] <= MOST_ROWS:
            return self._multiply(x)
        return torch.cat([self._multiply(part) for part in x.split(self.rows)])

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class PackedLinear(Linear):
    """The same by a copy of the weight in oneDNN's layout."""

    def __init__(self, linear: Linear, operators: Operators) -> None:
        super().__init__(operators.pack(linear.weight, _ROWS), linear.bias, linear.rows)
        self.shape = linear.shape
        self._operator = operators.multiply

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        return self._operator(x, self.weight, self.bias, "none", [], "")


@dataclass(frozen=True)
class Operators:
    """torch's private operators that pack a weight and multiply by it."""

    pack: Callable[..., torch.Tensor]
    multiply: Callable[..., torch.Tensor]

    @classmethod
    def find(cls, namespace: Any = None) -> Operators | None:
        """Those of this torch, None where it has none by these names."""
        namespace = torch.ops.mkldnn if namespace is None else namespace
        try:
            return cls(namespace._reorder_linear_weight.default, namespace._linear_pointwise.default)
        except AttributeError:
            return None


def packing_that_wins(linear: Linear) -> Operators | None:
    """The operators where packing ``linear`` gives the same bits sooner for one row and for a few."""
    operators = Operators.find() if linear.weight.dtype == torch.bfloat16 else None
    if operators is None or linear.weight.device.type != "cpu":
        return None
    generator = torch.Generator().manual_seed(0)
    try:
        packed = PackedLinear(linear, operators)
        for rows in (1, _ROWS):
            x = torch.randn(rows, linear.weight.shape[1], generator=generator).to(linear.weight.dtype)
            if not torch.equal(packed(x), linear(x)) or _seconds(packed, x) >= _seconds(linear, x):
                return None
    except (RuntimeError, TypeError):  # another signature, or a CPU that oneDNN has no bfloat16 for
        return None
    return operators


def invariant_rows(shape: torch.Size, dtype: torch.dtype, operators: Operators | None) -> int:
    """How many rows a product by a weight of ``shape`` may have so that each gets the bits it gets alone.

    A kernel chooses by the number of rows how it parts a sum, and a sum that is parted otherwise rounds
    otherwise. Here the terms of each sum cancel, so that all of the result is what rounding left. 0 where
    even a few rows differ from one, ``MOST_ROWS`` where none do.
    """
    outputs, inputs = shape
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(min(outputs, 64), inputs // 2, generator=generator).repeat(-(-outputs // 64), 1)[
        :outputs
    ]
    row = torch.randn(1, inputs // 2, generator=generator)
    odd = torch.zeros(1, inputs % 2)
    order = torch.randperm(inputs, generator=generator)
    weight = torch.cat([half, half, odd.expand(outputs, -1)], dim=1)[:, order].to(dtype)
    row = torch.cat([row, -row, odd], dim=1)[:, order].to(dtype)
    product = Linear(weight) if operators is None else PackedLinear(Linear(weight), operators)
    alone, fit = product(row), 0
    for rows in _TRIED_ROWS:
        if not bool((product(row.repeat(rows, 1)) == alone).all()):
            break
        fit = rows if rows in _BLOCKS else fit
    return fit


def _seconds(product: Linear, x: torch.Tensor) -> float:
    """The shortest of a few calls."""
    times = []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        product(x)
        times.append(time.perf_counter() - start)
    return min(times)
