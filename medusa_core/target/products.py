"""Products with weight matrices: torch's own, or oneDNN's with weights packed once, not in each call.

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

PACK_LIMIT = 512 * 2**20  # bytes of packed copies: beyond it reading the weights is what takes the time
_ROWS = 16  # a pack made for so many rows serves any number
_TIMED_CALLS = 5


@dataclass(frozen=True)
class Linear:
    """x [R, I] → [R, O] by a weight [O, I] and a bias [O]."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """The same by a copy of the weight in oneDNN's layout."""

    def __init__(self, linear: Linear, operators: Operators) -> None:
        self.weight = operators.pack(linear.weight, _ROWS)
        self.bias = linear.bias
        self._multiply = operators.multiply

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._multiply(x, self.weight, self.bias, "none", [], "")


Product = Linear | PackedLinear


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


def _seconds(product: Product, x: torch.Tensor) -> float:
    """The shortest of a few calls."""
    times = []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        product(x)
        times.append(time.perf_counter() - start)
    return min(times)
