"""One cache for several texts, for a forward of transformers' models that reads the weights once.

transformers takes a batch as [B, N] with one cache. Here each text keeps its own ``TreeCache``; for one
forward their rows are put together, padded on the left to the longest, and new rows go to their owners.

B texts · N rows of the longest tree · W of the longest cache with its tree · G key-value heads · D head size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from medusa_core.model.kv_cache import TreeCache, TreeLayer


class JointLayer(CacheLayerMixin):
    """One decoder layer of several caches, for one forward."""

    is_compileable = False
    is_sliding = False

    def __init__(self, owners: Sequence[TreeLayer], counts: Sequence[int]) -> None:
        super().__init__()
        self._owners = owners
        self._counts = counts  # new rows of each text

    @property
    def width(self) -> int:
        """W."""
        return max(owner.length + count for owner, count in zip(self._owners, self._counts, strict=True))

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to allocate: the owners' layers do."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give each owner its rows of [B, G, N, D]; return what all hold, [B, G, W, D], on the right."""
        width = self.width
        shape = (len(self._owners), key_states.shape[1], width)
        keys = key_states.new_zeros(*shape, key_states.shape[3])
        values = value_states.new_zeros(*shape, value_states.shape[3])
        for text, (owner, count) in enumerate(zip(self._owners, self._counts, strict=True)):
            new = slice(text, text + 1), slice(None), slice(key_states.shape[2] - count, None)
            held = owner.update(key_states[new], value_states[new])
            behind = slice(width - held[0].shape[2], None)
            keys[text, :, behind], values[text, :, behind] = held[0][0], held[1][0]
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width of the mask and its offset, as transformers asks for them."""
        return self.width, 0

    def get_seq_length(self) -> int:
        """Rows before the new ones, of the text that has the most."""
        return self.width - max(self._counts)

    def get_max_length(self) -> int:
        """W: it lives for one forward."""
        return self.width


class JointCache(Cache):
    """The caches of several texts as one, for a forward that adds ``counts`` rows to them."""

    def __init__(self, caches: Sequence[TreeCache], counts: Sequence[int]) -> None:
        by_layer = zip(*(cache.tree_layers for cache in caches), strict=True)
        super().__init__(layers=[JointLayer(owners, counts) for owners in by_layer])


def padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows [n] of several texts as [B, N], zeros on the left of the shorter ones."""
    longest = max(map(len, rows))
    result = rows[0].new_zeros(len(rows), longest)
    for text, row in enumerate(rows):
        result[text, longest - len(row) :] = row
    return result
