"""The caches of the forward in C, whose accepted rows are moved in C as well.

L layers · G key-value heads · D head size · S slots
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

import torch

from medusa_core.target.kv_cache import TreeLayer
from medusa_core.target.lean_cache import LeanCache, row_bytes
from medusa_core.target.native.library import Library

_PLACES = 32  # of the text, whose values lie beside each other for AMX
_AT_ONCE = 64  # keys that are read


def attends_by_tiles(library: Library, size: int) -> bool:
    """Whether attention of heads of ``size`` numbers runs on AMX, and so over a ``TileCache``."""
    return library.tiles and size % _PLACES == 0


def native_cache(layers: int, heads: int, size: int, slots: int, library: Library) -> NativeCache:
    """A cache for the forward in C."""
    kind = TileCache if attends_by_tiles(library, size) else NativeCache
    return kind(layers, heads, size, slots, library)


def native_row_bytes(size: int, library: Library) -> int:
    """Bytes of a row of one key-value head of ``size`` numbers in one layer."""
    return 2 * size * torch.bfloat16.itemsize if attends_by_tiles(library, size) else row_bytes(size)


def native_cache_bytes(size: int, slots: int, library: Library) -> int:
    """Bytes of one key-value head of one layer in a cache of so many slots."""
    rows = -(-slots // _AT_ONCE) * _AT_ONCE if attends_by_tiles(library, size) else slots
    return rows * native_row_bytes(size, library)


class NativeCache(LeanCache):
    """As ``LeanCache``, on a CPU."""

    def __init__(self, layers: int, heads: int, size: int, slots: int, library: Library) -> None:
        super().__init__(layers, heads, size, slots, torch.device("cpu"))
        self._library = library

    def _move(self, path: Sequence[int], start: int) -> None:
        count, (*lines, size, slots) = len(path), self.keys.shape
        kept = (ctypes.c_int64 * count)(*path)
        keys, values = self.keys.data_ptr(), self.values.data_ptr()
        self._library.functions.keep_rows(keys, values, prod(lines), size, slots, start, kept, count)


class TileCache(NativeCache):
    """For attention by AMX, in bfloat16: keys [L, G, S, D] and values [L, G, S / 32, D, 32]."""

    @property
    def rows(self) -> int:
        """Rows that the buffers hold."""
        return self.keys.shape[2]

    def _move(self, path: Sequence[int], start: int) -> None:
        count, (*lines, slots, size) = len(path), self.keys.shape
        kept = (ctypes.c_int64 * count)(*path)
        keys, values = self.keys.data_ptr(), self.values.data_ptr()
        self._library.functions.keep_tiled_rows(keys, values, prod(lines), size, slots, start, kept, count)

    def _resize(self, rows: int) -> None:
        if rows <= self.rows:
            return
        keys, values = self.keys, self.values
        layers, heads, before, size = keys.shape
        self._allocate(layers, heads, size, rows, keys.device)
        self.keys[:, :, :before] = keys
        self.values[:, :, : values.shape[2]] = values

    def _allocate(self, layers: int, heads: int, size: int, rows: int, device: torch.device) -> None:
        blocks = -(-rows // _AT_ONCE) * (_AT_ONCE // _PLACES)
        self.keys = torch.zeros(layers, heads, blocks * _PLACES, size, dtype=torch.bfloat16, device=device)
        self.values = self.keys.new_zeros(layers, heads, blocks, size, _PLACES)
        self._layers = [_TileLayer(layer.slots, layer.length) for layer in self._layers]
        self.layers = list(self._layers)
        for number, layer in enumerate(self._layers):
            layer.slots = self.slots
            layer.keys, layer.values = self.keys[None, number], self.values[None, number]
            layer.dtype, layer.device, layer.is_initialized = self.keys.dtype, device, True


class _TileLayer(TreeLayer):
    """A layer of a ``TileCache``: keys [1, G, S, D] and values [1, G, S / 32, D, 32]."""

    def __init__(self, slots: int, length: int) -> None:
        super().__init__(slots)
        self.length = length

    def take(self, other: TreeLayer, rows: torch.Tensor, start: int) -> None:
        """As ``TreeLayer``, from a layer of the same kind."""
        heads, slots = torch.arange(len(rows))[:, None], torch.arange(start, start + rows.shape[1])
        self.keys[0, :, slots] = other.keys[0][heads, rows]
        values = other.values[0][heads, rows // _PLACES, :, rows % _PLACES]  # [G, R, D]
        self.values[0][heads, slots // _PLACES, :, slots % _PLACES] = values
