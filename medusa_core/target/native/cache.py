"""The cache of the forward in C, whose accepted rows are moved in C as well."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

import torch

from medusa_core.target.lean_cache import LeanCache
from medusa_core.target.native.library import Library


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
