"""The key-value cache of the lean forward: two buffers for all layers, allocated once for a run.

Float32, so that no row is widened again in every step; a key is a column, since BLAS adds up a product of
two matrices in the order of their numbers only where neither is transposed (``exact_attention``).

Where every layer sees a window alone, the rows that fell out of it are dropped, a thousand at a time: the
buffers have room for the window and that many more, however long the text becomes.

L layers · G key-value heads · D head size · S slots
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from medusa_core.model.exact_attention import CHUNK, ONES, SUMS_BYTES, WEIGHTS_BYTES
from medusa_core.model.kv_cache import TreeCache

# Families whose layers differ from Llama's by a bias, a norm on queries and keys, a rotary setting, a window.
LEAN = frozenset({
    "cwm", "llama", "ministral", "mistral", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3"
})  # fmt: skip

_BACK = 512  # rows that are kept behind the window, for a text that goes back a little
_STRIDE = 1024  # rows that are written between two times that the window's rows are moved to the front


def first_row_seen(length: int, window: int) -> int:
    """The row to read from, behind ``length`` committed ones, for layers that see ``window`` rows.

    Rows before it have weight 0. A multiple of CHUNK, so that sums are parted as if all rows were read, and a
    chunk early, since the first chunk of a sum must not be a tiny one.
    """
    return max(0, (length - window + 1) // CHUNK - 1) * CHUNK


def window_slots(window: int) -> int:
    """Rows of the buffers where every layer sees a window."""
    return -(-window // CHUNK) * CHUNK + _BACK + _STRIDE + 2 * CHUNK


def row_bytes(size: int) -> int:
    """Bytes of a row of one key-value head of ``size`` numbers in one layer."""
    return (2 * size + ONES) * torch.float32.itemsize


class LeanCache(TreeCache):
    """Keys [L, G, D, S] and values [L, G, S, D + ONES]; the layers that transformers knows are views.

    With a ``window`` the buffers begin with row ``first``; the rows before it are gone.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        size: int,
        slots: int,
        device: torch.device,
        window: int | None = None,
    ) -> None:
        super().__init__(layers, slots)
        self._window = window
        self.first = 0
        self._allocate(layers, heads, size, self._rows_for(slots), device)
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        self._buffer = self._sums = self._work = torch.empty(0)

    def kept(self, given: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """What ``make`` makes of a tree's mask, which is the same tensor in most steps of a run."""
        if self._kept is None or self._kept[0] is not given:
            self._kept = given, make(given)
        return self._kept[1]

    def buffer(self, rows: int, keys: int) -> torch.Tensor:
        """Room for the attention weights of ``rows`` on ``keys``, the same memory however the text grows.

        Blocks that are asked for anew, each a little larger, leave gaps that the C library keeps.
        """
        if rows * keys > len(self._buffer):
            self._buffer = torch.empty(0)  # before the larger one is asked for
            most = min(rows * self.rows, WEIGHTS_BYTES // self._buffer.itemsize)
            self._buffer = torch.empty(max(most, rows * keys))
        return self._buffer[: rows * keys]

    def sums(self) -> torch.Tensor:
        """Room for the sums of chunks, from where the text is long enough to need it."""
        if not len(self._sums):
            self._sums = torch.empty(SUMS_BYTES // self._sums.itemsize)
        return self._sums

    def work(self, size: int) -> torch.Tensor:
        """Room of so many bytes for what else a forward in C works in."""
        places = -(-size // self._work.itemsize)
        if places > len(self._work):
            self._work = torch.empty(places)
        return self._work

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def bounded(self) -> bool:
        """Whether it drops the rows that no layer sees any more."""
        return self._window is not None

    @property
    def rows(self) -> int:
        """Rows that the buffers hold."""
        return self.keys.shape[-1]

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        count = len(path)
        if list(path) != list(range(count)):
            self._move(path, self.length - self.first)
        for layer in self._layers:
            layer.length += count

    def _move(self, path: Sequence[int], start: int) -> None:
        rows, count = torch.tensor([start + row for row in path], device=self.keys.device), len(path)
        # The rows are copied before they are written, so overlapping source and target are safe.
        self.keys.narrow(3, start, count).copy_(self.keys.index_select(3, rows))
        self.values.narrow(2, start, count).copy_(self.values.index_select(2, rows))

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on; all of them where rows that are needed then were dropped."""
        if self._window is not None and length < self.length:
            if self.first > first_row_seen(length, self._window):
                length = 0
            if length == 0:
                self.first = 0
        super().truncate(length)

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        if slots > self.slots:
            self.slots = slots
            self._resize(self._rows_for(slots))

    def make_room(self, count: int) -> None:
        """Before ``count`` rows are written: where the buffers are full, drop rows that nothing will read."""
        if self._window is None or self.length + count - self.first <= self.rows:
            return
        first = first_row_seen(max(0, self.length - _BACK), self._window)
        by, kept = first - self.first, self.length - first
        for number in range(len(self._layers)):  # source and target overlap, so each layer is copied first
            self.keys[number, :, :, :kept] = self.keys[number, :, :, by : by + kept].clone()
            self.values[number, :, :kept] = self.values[number, :, by : by + kept].clone()
        self.first = first
        self._resize(kept + count)

    def _rows_for(self, slots: int) -> int:
        return slots if self._window is None else min(slots, window_slots(self._window))

    def _resize(self, rows: int) -> None:
        """New buffers where the old ones have less than so many rows."""
        if rows <= self.rows:
            return
        keys, values, length = self.keys, self.values, self.length - self.first
        layers, heads, size, _ = keys.shape
        self._allocate(layers, heads, size, rows, keys.device)
        self.keys[..., :length] = keys[..., :length]
        self.values[:, :, :length] = values[:, :, :length]

    def _allocate(self, layers: int, heads: int, size: int, rows: int, device: torch.device) -> None:
        self.keys = torch.zeros(layers, heads, size, rows, device=device)
        self.values = torch.zeros(layers, heads, rows, size + ONES, device=device)
        self.values[..., size] = 1
        for number, layer in enumerate(self._layers):
            layer.slots = self.slots
            layer.keys = self.keys[None, number].transpose(2, 3)
            layer.values = self.values[None, number, :, :, :size]
            layer.dtype, layer.device, layer.is_initialized = torch.float32, device, True
