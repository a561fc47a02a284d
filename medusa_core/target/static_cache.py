"""A key-value cache at addresses that stay, for steps that were captured once and are replayed.

A captured step knows the addresses it read and wrote, so the buffers outlive their run: the next run's cache
takes over what is free, with the steps that belong to it. What an earlier run left there is masked.

L layers · G key-value heads · D head size · S slots
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from medusa_core.target.kv_cache import TreeCache

_FEWEST_SLOTS = 256
_MOST_IDLE = 2  # buffers kept for later runs


@dataclass(eq=False)
class Buffers:
    """Memory at one place, and what was captured over it, by the caller's key."""

    keys: torch.Tensor  # [L, G, S, D]
    values: torch.Tensor  # [L, G, S, D]
    captured: dict[Any, Any] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Rows that fit."""
        return self.keys.shape[2]


class BufferPool:
    """Hands out buffers of one model and takes them back when their cache is gone."""

    def __init__(self, layers: int, heads: int, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = (layers, heads, size), dtype, device
        self._idle: list[Buffers] = []

    def take(self, slots: int) -> Buffers:
        """Buffers of at least ``slots`` rows: the smallest that fit of those that are free, or new ones."""
        fitting = [buffers for buffers in self._idle if buffers.slots >= slots]
        if fitting:
            chosen = min(fitting, key=lambda buffers: buffers.slots)
            self._idle.remove(chosen)
            return chosen
        layers, heads, size = self._shape
        rows = self._rows_for(slots)
        keys = torch.zeros(layers, heads, rows, size, dtype=self._dtype, device=self._device)
        return Buffers(keys, torch.zeros_like(keys))

    def bytes_for(self, slots: int) -> int:
        """What new buffers of at least ``slots`` rows take."""
        layers, heads, size = self._shape
        return 2 * layers * heads * size * self._rows_for(slots) * self._dtype.itemsize

    @staticmethod
    def _rows_for(slots: int) -> int:
        return max(_FEWEST_SLOTS, 1 << (slots - 1).bit_length())

    def give_back(self, buffers: Buffers) -> None:
        """They are free again."""
        self._idle.append(buffers)
        while len(self._idle) > _MOST_IDLE:
            self._idle.remove(min(self._idle, key=lambda one: one.slots))


class StaticCache(TreeCache):
    """The cache of one run in pooled buffers; the layers that transformers knows are views of them."""

    def __init__(self, pool: BufferPool, layers: int, slots: int, padding: int) -> None:
        """``padding`` more rows than ``slots`` can be written, and never committed."""
        super().__init__(layers, slots)
        self._pool, self._padding = pool, padding
        self._move_in(pool.take(slots + padding))

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return self.buffers.keys.nbytes + self.buffers.values.nbytes

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        start, count = self.length, len(path)
        if list(path) != list(range(count)):
            rows = torch.tensor(path, device=self.buffers.keys.device) + start
            # Indexing copies before it is assigned, so overlapping source and target are safe.
            for rows_of in (self.buffers.keys, self.buffers.values):
                rows_of[:, :, start : start + count] = rows_of[:, :, rows]
        for layer in self._layers:
            layer.length = start + count

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        if slots <= self.slots:
            return
        old, length = self.buffers, self.length
        if slots + self._padding > old.slots:
            new = self._pool.take(slots + self._padding)
            new.keys[:, :, :length] = old.keys[:, :, :length]
            new.values[:, :, :length] = old.values[:, :, :length]
            self._finalizer()  # gives the old ones back
            self._move_in(new)
        self.slots = slots

    def _move_in(self, buffers: Buffers) -> None:
        self.buffers = buffers
        self._finalizer = weakref.finalize(self, self._pool.give_back, buffers)
        for number, layer in enumerate(self._layers):
            layer.slots = buffers.slots
            layer.keys, layer.values = buffers.keys[None, number], buffers.values[None, number]
            layer.dtype, layer.device = buffers.keys.dtype, buffers.keys.device
            layer.is_initialized = True
