"""Rotary positions from a table: cos and sin of every position, made once by transformers' own module."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Rotations(NamedTuple):
    """One row a position: cos [P, 1, rotated], and sin with its first half negated."""

    cos: torch.Tensor
    sin: torch.Tensor

    def at(self, positions: torch.Tensor) -> Rotations:
        """Those of ``positions`` [N]."""
        return Rotations(self.cos.index_select(0, positions), self.sin.index_select(0, positions))

    def of_one(self, position: int) -> Rotations:
        """Those of one position, without a copy."""
        return Rotations(self.cos.narrow(0, position, 1), self.sin.narrow(0, position, 1))


def rotations(rotary: nn.Module, rows: int, device: torch.device) -> Rotations:
    """Those of the first ``rows`` positions, in float32, by the model's module, which knows every scaling."""
    return rotations_at(rotary, torch.arange(rows, device=device))


def rotations_at(rotary: nn.Module, positions: torch.Tensor) -> Rotations:
    """Those of ``positions`` [N], by the same module."""
    cos, sin = rotary(torch.empty(0, device=positions.device), positions[None])
    cos, sin = cos[0, :, None].float(), sin[0, :, None].float()
    half = sin.shape[-1] // 2
    return Rotations(cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1))


def rotated(x: torch.Tensor, by: Rotations) -> torch.Tensor:
    """Pairs (i, i + half) of the first numbers of each head turned by their angles, in float32.

    x [N, heads, D], of any dtype.
    """
    width = by.cos.shape[-1]
    turned = x if width == x.shape[-1] else x[..., :width]
    exchanged = turned.view(*x.shape[:-1], 2, width // 2).flip(-2).reshape(turned.shape)
    result = torch.addcmul(turned * by.cos, exchanged, by.sin)
    return result if turned is x else torch.cat([result, x[..., width:]], dim=-1)


class Turns:
    """The same as a product with a matrix for each row, which for a few rows takes half of the time."""

    def __init__(self, size: int, width: int, device: torch.device) -> None:
        """Heads of ``size`` numbers, of which the first ``width`` are turned."""
        self._kept = torch.eye(size, device=device)
        self._exchanged = torch.zeros(size, size, device=device)
        self._exchanged[:width, :width] = self._kept[:width, :width].roll(width // 2, dims=0)
        self._rest = size - width

    def by(self, rotations: Rotations) -> torch.Tensor:
        """Matrices [N, D, D] for N rows: x [N, heads, D] is turned by ``torch.bmm(x, matrices)``."""
        cos, sin = rotations
        if self._rest:
            cos, sin = F.pad(cos, (0, self._rest), value=1.0), F.pad(sin, (0, self._rest))
        return torch.addcmul(self._kept * cos, self._exchanged, sin)
