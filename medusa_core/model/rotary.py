"""Rotary positions from a table: cos and sin of every position, made once by transformers' own module."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Rotations(NamedTuple):
    """One row a position: cos [P, 1, rotated], and sin with its first half negated."""

    cos: torch.Tensor
    sin: torch.Tensor


def rotations(rotary: nn.Module, rows: int, device: torch.device) -> Rotations:
    """Rotations of the first ``rows`` positions, float32, by the model's module, which knows all scalings."""
    return rotations_at(rotary, torch.arange(rows, device=device))


def rotations_at(rotary: nn.Module, positions: torch.Tensor) -> Rotations:
    """Rotations of ``positions`` [N], by the same module."""
    cos, sin = rotary(torch.empty(0, dtype=torch.float32, device=positions.device), positions[None])
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
