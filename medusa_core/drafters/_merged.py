"""Several drafters as one: each proposes a tree, and the trees are merged.

The leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from medusa_core.drafters import CacheDrafter, Drafter, RowsDrafter
from medusa_core.trees.token_tree import union

if TYPE_CHECKING:
    import torch

    from medusa_core.model.kv_cache import TreeCache
    from medusa_core.trees.token_tree import TokenTree


class MergedDrafter:
    """Proposes the union of its drafters' trees; a guess that several make is credited to the first.

    Only the first may read hidden states: those that join in draft from the text.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self._keeping = [drafter for drafter in drafters if isinstance(drafter, RowsDrafter)]
        self.features = drafters[0].features
        self.largest_tree = sum(drafter.largest_tree - 1 for drafter in drafters) + 1

    @property
    def cache_bytes(self) -> int:
        """Bytes of the drafters' own key-value caches."""
        return sum(drafter.cache_bytes for drafter in self._keeping)

    def reserve(self, rows: int) -> None:
        """Make room in those that keep rows."""
        for drafter in self._keeping:
            drafter.reserve(rows)

    def cache_bytes_for(self, rows: int) -> int:
        """The sum of the drafters' own."""
        return sum(drafter.cache_bytes_for(rows) for drafter in self._keeping)

    @property
    def length(self) -> int:
        """Tokens of the text that the first has read."""
        first = self._drafters[0]
        return first.length if isinstance(first, RowsDrafter) else 0

    def read_cache(self, cache: TreeCache) -> None:
        """Hand the run's cache to those that read it."""
        for drafter in self._drafters:
            if isinstance(drafter, CacheDrafter):
                drafter.read_cache(cache)

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Begin them all."""
        for drafter in self._drafters:
            drafter.begin(tokens, features)

    def propose(self, root: int, depth: int) -> TokenTree:
        """The union of what they propose."""
        return union([drafter.propose(root, depth) for drafter in self._drafters])

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Tell them all."""
        for drafter in self._drafters:
            drafter.observe(tokens, features)

    def truncate(self, length: int) -> None:
        """Cut them all back."""
        for drafter in self._drafters:
            drafter.truncate(length)
