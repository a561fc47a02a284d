"""A key-value cache at addresses that stay, for steps that were captured once and are replayed.

A captured step knows the addresses it read and wrote, so the buffers outlive their run: the next run's cache
takes over what is free, with the steps that belong to it. What an earlier run left there is masked.

G key-value heads · D head size · S slots
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch

from medusa_core.model.kv_cache import TreeCache

_FEWEST_SLOTS = 256
_MOST_IDLE = 2  # buffers kept for later runs


def buffer_rows(slots: int) -> int:
    """Rows of the buffers for so many: a power of two, so that a growing text moves seldom."""
    return max(_FEWEST_SLOTS, 1 << (slots - 1).bit_length())


class LayerShape(NamedTuple):
    """What a layer keeps of a row."""

    keys: tuple[int, int]  # heads and numbers of each
    values: tuple[int, int]
    dtype: torch.dtype


@dataclass(eq=False)
class Buffers:
    """Memory at one place, and what was captured over it, by the caller's key."""

    stores: list[torch.Tensor]  # [n, G, S, D] of what has the same shape, whose rows are moved as one
    layers: list[tuple[torch.Tensor, torch.Tensor] | None]  # keys and values [G, S, D]; None: none of its own
    slots: int  # rows that fit
    captured: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, shapes: Sequence[LayerShape | None], slots: int, device: torch.device) -> Buffers:
        """New ones."""
        own = [shape for shape in shapes if shape is not None]
        kinds = Counter((size, shape.dtype) for shape in own for size in (shape.keys, shape.values))
        stores = {
            (size, dtype): torch.zeros(count, size[0], slots, size[1], dtype=dtype, device=device)
            for (size, dtype), count in kinds.items()
        }
        free = {kind: iter(store) for kind, store in stores.items()}
        layers = [
            None
            if shape is None
            else (next(free[shape.keys, shape.dtype]), next(free[shape.values, shape.dtype]))
            for shape in shapes
        ]
        return cls(list(stores.values()), layers, slots)

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(store.nbytes for store in self.stores)

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.stores[0].device


class BufferPool:
    """Hands out buffers of one model and takes them back when their cache is gone."""

    def __init__(self, shapes: Sequence[LayerShape | None], device: torch.device) -> None:
        """``shapes`` of all layers; None for one that keeps nothing."""
        self.shapes, self._device = shapes, device
        self._idle: list[Buffers] = []

    def take(self, slots: int) -> Buffers:
        """Buffers of at least ``slots`` rows: the smallest that fit of those that are free, or new ones."""
        fitting = [buffers for buffers in self._idle if buffers.slots >= slots]
        if fitting:
            chosen = min(fitting, key=lambda buffers: buffers.slots)
            self._idle.remove(chosen)
            return chosen
        return Buffers.of(self.shapes, buffer_rows(slots), self._device)

    def bytes_for(self, slots: int) -> int:
        """What new buffers of at least ``slots`` rows take."""
        own = [shape for shape in self.shapes if shape is not None]
        row = sum(prod(size) * shape.dtype.itemsize for shape in own for size in (shape.keys, shape.values))
        return row * buffer_rows(slots)

    def give_back(self, buffers: Buffers) -> None:
        """They are free again."""
        self._idle.append(buffers)
        while len(self._idle) > _MOST_IDLE:
            self._idle.remove(min(self._idle, key=lambda one: one.slots))


class StaticCache(TreeCache):
    """The cache of one run in pooled buffers; the layers that transformers knows are views of them."""

    def __init__(self, pool: BufferPool, slots: int, padding: int) -> None:
        """``padding`` more rows than ``slots`` can be written, and never committed."""
        super().__init__(len(pool.shapes), slots)
        self._pool, self._padding = pool, padding
        self._move_in(pool.take(slots + padding))

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return self.buffers.nbytes

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        start, count = self.length, len(path)
        if list(path) != list(range(count)):
            rows = torch.tensor(path, device=self.buffers.device) + start
            # Indexing copies before it is assigned, so overlapping source and target are safe.
            for store in self.buffers.stores:
                store[:, :, start : start + count] = store[:, :, rows]
        for layer in self._layers:
            layer.length = start + count

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        if slots <= self.slots:
            return
        old, length = self.buffers, self.length
        if slots + self._padding > old.slots:
            new = self._pool.take(slots + self._padding)
            for store, its in zip(new.stores, old.stores, strict=True):
                store[:, :, :length] = its[:, :, :length]
            self._finalizer()  # gives the old ones back
            self._move_in(new)
        self.slots = slots

    def _move_in(self, buffers: Buffers) -> None:
        self.buffers = buffers
        self._finalizer = weakref.finalize(self, self._pool.give_back, buffers)
        for layer, own in zip(self._layers, buffers.layers, strict=True):
            layer.slots = buffers.slots
            if own is not None:
                layer.keys, layer.values = own[0][None], own[1][None]
                layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
                layer.is_initialized = True
