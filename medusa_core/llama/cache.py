"""The key-value cache of the C: two buffers for all layers, allocated once for a run, in the model's dtype.

Where every layer sees a window alone, the rows that fell out of it are dropped, a thousand at a time: the
buffers have room for the window and that many more, however long the text becomes.

L layers · G key-value heads · D head size · S slots
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from medusa_core.llama.library import Library
from medusa_core.llama.panels import wide
from medusa_core.model.kv_cache import TreeCache

_BACK = 512  # rows that are kept behind the window, for a text that goes back a little
_STRIDE = 1024  # rows that are written between two times that the window's rows are moved to the front


def row_bytes(size: int, dtype: torch.dtype) -> int:
    """Bytes of a row of one key-value head of ``size`` numbers in one layer."""
    return 2 * wide(size) * dtype.itemsize


def buffer_rows(slots: int, window: int | None) -> int:
    """Rows of the buffers for a text of ``slots``: no more than a ``window`` needs that all layers have."""
    return slots if window is None else min(slots, window + _BACK + _STRIDE)


class LlamaCache(TreeCache):
    """Keys and values [L, G, S, wide(D)]; the layers that transformers knows are views.

    With a ``window`` the buffers begin with row ``first``; the rows before it are gone.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        size: int,
        slots: int,
        dtype: torch.dtype,
        library: Library,
        window: int | None,
    ) -> None:
        super().__init__(layers, slots)
        self._size, self._window, self._library = size, window, library
        self.first = 0
        self._allocate(torch.Size((layers, heads, buffer_rows(slots, window), wide(size))), dtype)
        self._work = torch.empty(0, dtype=torch.uint8)

    def work(self, size: int) -> torch.Tensor:
        """Working memory of so many bytes for a call, kept from one call to the next."""
        if size > len(self._work):
            self._work = torch.empty(0, dtype=torch.uint8)  # before the larger one is asked for
            self._work = torch.empty(size, dtype=torch.uint8)
        return self._work

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def bounded(self) -> bool:
        """Whether it drops the rows that no layer sees any more."""
        return self._window is not None

    @property
    def rows(self) -> int:
        return self.keys.shape[2]

    @property
    def start(self) -> int:
        """Rows of the buffers in front of the next ones."""
        return self.length - self.first

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        count = len(path)
        if list(path) != list(range(count)):
            layers, heads, slots, _ = self.keys.shape
            row, kept = self.keys.stride(2) * self.keys.itemsize, (ctypes.c_int64 * count)(*path)
            addresses = self.keys.data_ptr(), self.values.data_ptr()
            self._library.functions.keep_rows(*addresses, layers * heads, row, slots, self.start, kept, count)
        for layer in self.tree_layers:
            layer.length += count

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on; all of them where rows that are needed then were dropped."""
        if self._window is not None and length < self.length:
            if self.first > _first_row_seen(length, self._window):
                length = 0
            if length == 0:
                self.first = 0
        super().truncate(length)

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        if slots > self.slots:
            self.slots = slots
            self._resize(buffer_rows(slots, self._window))

    def make_room(self, count: int) -> None:
        """Before ``count`` rows are written: where the buffers are full, drop rows that nothing will read."""
        if self._window is None or self.length + count - self.first <= self.rows:
            return
        first = _first_row_seen(max(0, self.length - _BACK), self._window)
        by, kept = first - self.first, self.length - first
        for layer in (*self.keys, *self.values):  # source and target overlap, so each layer is copied first
            layer[:, :kept] = layer[:, by : by + kept].clone()
        self.first = first
        self._resize(kept + count)

    def _resize(self, rows: int) -> None:
        """New buffers where the old ones have less than so many rows."""
        if rows <= self.rows:
            return
        keys, values, length = self.keys, self.values, self.length - self.first
        layers, heads, _, size = keys.shape
        self._allocate(torch.Size((layers, heads, rows, size)), keys.dtype)
        self.keys[:, :, :length] = keys[:, :, :length]
        self.values[:, :, :length] = values[:, :, :length]

    def _allocate(self, shape: torch.Size, dtype: torch.dtype) -> None:
        self.keys, self.values = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        for number, layer in enumerate(self.tree_layers):
            layer.slots = self.slots
            layer.keys = self.keys[None, number, :, :, : self._size]
            layer.values = self.values[None, number, :, :, : self._size]
            layer.dtype, layer.device, layer.is_initialized = dtype, self.keys.device, True


def _first_row_seen(length: int, window: int) -> int:
    return max(0, length - window + 1)
