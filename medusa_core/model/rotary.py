"""Rotary positions from a table: cos and sin of every position, made once by transformers' own module."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Rotations(NamedTuple):
    """One row a position: cos [P, 1, rotated], and sin with its first half negated."""

    cos: torch.Tensor
    sin: torch.Tensor


def rotations_at(rotary: nn.Module, positions: torch.Tensor) -> Rotations:
    """Rotations of ``positions`` [N], float32, by the model's module, which knows all scalings."""
    cos, sin = rotary(torch.empty(0, dtype=torch.float32, device=positions.device), positions[None])
    cos, sin = cos[0, :, None].float(), sin[0, :, None].float()
    half = sin.shape[-1] // 2
    return Rotations(cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1))


class RotaryTable:
    """The rotations of as many positions as were asked for so far."""

    def __init__(
        self, rotary: nn.Module, device: torch.device, least: int, context: int | None = None
    ) -> None:
        """``least`` positions are made at first.

        Beyond the ``context``, where rotations that depend on the length change, no more than asked for.
        """
        self._rotary, self._device, self._least, self._context = rotary, device, least, context
        self._table = Rotations(torch.empty(0), torch.empty(0))

    def at(self, first: int, count: int) -> Rotations:
        """Rotations of ``count`` positions from ``first`` on."""
        end = first + count
        table = self.prepare(end)
        return Rotations(table.cos[first:end], table.sin[first:end])

    def prepare(self, count: int) -> Rotations:
        """A table of at least so many positions: while a text grows, each larger one is a copy.

        A caller goes on with the table returned here, since runs in other threads let it grow too.
        """
        table = self._table
        if count > len(table.cos):
            rows = max(2 * len(table.cos), count, self._least)
            rows = rows if self._context is None else min(rows, max(self._context, count))
            table = self._table = rotations_at(
                self._rotary, torch.arange(rows, device=self._device)
            )  # one assignment
        return table


def rotated(x: torch.Tensor, by: Rotations) -> torch.Tensor:
    """Pairs (i, i + half) of the first numbers of each head turned by their angles, in float32.

    x [N, heads, D], of any dtype.
    """
    width = by.cos.shape[-1]
    turned = x if width == x.shape[-1] else x[..., :width]
    exchanged = turned.view(*x.shape[:-1], 2, width // 2).flip(-2).reshape(turned.shape)
    result = torch.addcmul(turned * by.cos, exchanged, by.sin)
    return result if turned is x else torch.cat([result, x[..., width:]], dim=-1)
