"""Several drafters as one: each proposes a tree, and the trees are merged."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.drafters import Drafter
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.token_tree import TokenTree, union


class MergedDrafter(Drafter):
    """Proposes the union of its drafters' trees; a guess that several make is credited to the first.

    Only the first may read hidden states: those that join in draft from the text. None of them draws its
    guesses, since a merged tree does not keep the distributions.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self.features = drafters[0].features
        self.largest_tree = sum(drafter.largest_tree - 1 for drafter in drafters) + 1

    def propose(self, root: int, depth: int) -> TokenTree:
        return union([drafter.propose(root, depth) for drafter in self._drafters])

    def read_cache(self, cache: TreeCache) -> None:
        for drafter in self._drafters:
            drafter.read_cache(cache)

    def truncate(self, length: int) -> None:
        for drafter in self._drafters:
            drafter.truncate(length)

    def reserve(self, rows: int) -> None:
        for drafter in self._drafters:
            drafter.reserve(rows)

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        for drafter in self._drafters:
            drafter.begin(tokens, features)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        for drafter in self._drafters:
            drafter.observe(tokens, features)

    @property
    def length(self) -> int:
        return self._drafters[0].length

    @property
    def cache_bytes(self) -> int:
        return sum(drafter.cache_bytes for drafter in self._drafters)

    def cache_bytes_for(self, rows: int) -> int:
        return sum(drafter.cache_bytes_for(rows) for drafter in self._drafters)
