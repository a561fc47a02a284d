"""Weights in panels of sixteen outputs, as the products in C read them: ``model.h`` says how they lie.

O outputs · I inputs, both in whole panels of ``wide`` numbers
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from medusa_core.llama import structures

LANES = 16  # outputs of a panel
_UNIT = 32  # inputs, and outputs, come in multiples of it
_KINDS = torch.bfloat16, torch.float32, torch.int8  # in the order of structures.h
_LEVELS = 127  # levels of a weight in 8 bits, on either side of 0


def wide(count: int) -> int:
    """Places that a row of so many numbers takes."""
    return -(-count // _UNIT) * _UNIT


def kind_of(dtype: torch.dtype) -> int:
    """The number that C has for a dtype."""
    return _KINDS.index(dtype)


@dataclass(frozen=True)
class Panels:
    """A linear layer. ``numbers`` are [O / 16, I / step, 16, step]; step is 1 in float32 and 2 elsewhere."""

    numbers: torch.Tensor
    inputs: int
    outputs: int
    dtype: torch.dtype  # dtype of the weight before packing
    bias: torch.Tensor | None = None  # float32 [O]
    scales: torch.Tensor | None = None  # float32 [O], of weights in 8 bits

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None = None, *, int8: bool = False) -> Panels:
        """Pack ``weight`` [outputs, inputs], rounded to 8 bits if asked for, and ``bias`` [outputs]."""
        outputs, inputs = weight.shape
        numbers, scales = _rounded(weight) if int8 else (weight, None)
        bias = None if bias is None else padded(bias)
        return cls(_packed(numbers), inputs, outputs, weight.dtype, bias, scales)

    @classmethod
    def by_turns(
        cls, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor | None], *, int8: bool = False
    ) -> Panels:
        """Two layers on the same input: a panel of the first, a panel of the second, and so on."""
        both = [cls.of(weight, bias, int8=int8) for weight, bias in zip(weights, biases, strict=True)]
        packed = torch.stack([one.numbers for one in both], dim=1).flatten(0, 1)
        bias, scales = (
            _line_by_line([line for one in both if (line := getattr(one, name)) is not None])
            for name in ("bias", "scales")
        )
        return cls(packed, both[0].inputs, len(packed) * LANES, both[0].dtype, bias, scales)

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs, self.inputs

    @property
    def structure(self) -> ctypes.Structure:
        """The structure that C reads, valid as long as these panels live."""
        bias, scales = (None if one is None else one.data_ptr() for one in (self.bias, self.scales))
        kind, panels = kind_of(self.numbers.dtype), self.numbers.data_ptr()
        return structures.Linear(kind, self.inputs, self.outputs, panels, bias, scales)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in (self.numbers, self.bias, self.scales) if one is not None)

    def unpacked(self) -> torch.Tensor:
        """The weight [outputs, inputs]."""
        return self._numbers(_unpacked(self.numbers), self.scales)[: self.outputs, : self.inputs]

    def both_unpacked(self, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights [outputs, inputs] of two layers by turns."""
        scales = [None] * 2 if self.scales is None else self.scales.view(-1, 2, LANES).transpose(0, 1)
        first, second = (
            self._numbers(_unpacked(self.numbers[turn::2]), scales[turn])[:outputs, : self.inputs]
            for turn in range(2)
        )
        return first, second

    def _numbers(self, numbers: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        """What ``numbers`` [O, I] stand for, in the dtype of the weight."""
        return numbers if scales is None else (numbers * scales.reshape(-1, 1)).to(self.dtype)


def _line_by_line(both: Sequence[torch.Tensor]) -> torch.Tensor | None:
    return torch.stack([one.view(-1, LANES) for one in both], dim=1).flatten() if both else None


def _rounded(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight rounded to 8 bits, with one scale an output."""
    largest = weight.abs().amax(dim=1).float().clamp(min=torch.finfo(torch.float32).tiny)
    scales = largest / _LEVELS
    return (weight / scales[:, None]).round_().to(torch.int8), padded(scales)


def _packed(weight: torch.Tensor) -> torch.Tensor:
    outputs, inputs = weight.shape
    step = 1 if weight.dtype == torch.float32 else 2
    if (outputs, inputs) != (wide(outputs), wide(inputs)):
        weight = F.pad(weight, (0, wide(inputs) - inputs, 0, wide(outputs) - outputs))
    panels = weight.reshape(-1, LANES, weight.shape[1] // step, step).transpose(1, 2)
    copy = torch.empty(panels.shape, dtype=panels.dtype)  # torch's memory begins with a multiple of 64 bytes
    assert copy.data_ptr() % 64 == 0
    return copy.copy_(panels)


def _unpacked(panels: torch.Tensor) -> torch.Tensor:
    return panels.transpose(1, 2).flatten(2).flatten(0, 1)


def padded(values: torch.Tensor) -> torch.Tensor:
    """The values in float32, with zeros up to a whole panel of places."""
    return F.pad(values.detach().float(), (0, wide(len(values)) - len(values)))
