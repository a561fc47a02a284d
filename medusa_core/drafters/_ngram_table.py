"""The n-grams of a text by their first token, counted: what drafters that copy from the text look up.

TokenSwift, §2.2 (token reuse).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

_Followers = dict[tuple[int, ...], list[int]]  # n-grams after a token, with the places where each was


@dataclass(frozen=True)
class FoundNode:
    """A node of the tree of n-grams that followed one token, which is node 0.

    ``count`` is how often the path to this node followed that token in the text, and ``latest`` the place
    where it last began. ``rank`` is the place of the n-gram that brought the node, the most frequent 0.
    """

    token: int
    parent: int
    rank: int
    count: int
    latest: int


class NgramTable:
    """Every token of a text with the ``following`` tokens after it, and the places where these stand."""

    def __init__(self, following: int) -> None:
        self._following_count = following
        self._tokens: list[int] = []
        # Per first token, the tokens that followed it and the places where they did, in rising order.
        self._places: defaultdict[int, _Followers] = defaultdict(lambda: defaultdict(list))

    @property
    def length(self) -> int:
        """Tokens of the text it has counted."""
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Count the n-grams that further tokens complete."""
        n = self._following_count
        first = max(len(self._tokens) - n, 0)
        self._tokens += tokens
        for start in range(first, len(self._tokens) - n):
            self._places[self._tokens[start]][self._following(start)].append(start)

    def truncate(self, length: int) -> None:
        """Forget the n-grams that end after ``length`` tokens."""
        n = self._following_count
        for start in range(max(length - n, 0), len(self._tokens) - n):
            followers, following = self._places[self._tokens[start]], self._following(start)
            followers[following].remove(start)
            if not followers[following]:
                del followers[following]
        del self._tokens[length:]

    def tree(self, first: int, depth: int, top_k: int, most: int) -> list[FoundNode]:
        """The ``top_k`` most frequent n-grams after ``first``, merged where they begin alike.

        No deeper than ``depth`` and of at most ``most`` nodes, the first one included: that is ``first``
        itself, counted where anything followed it.
        """
        followers: _Followers = self._places.get(first, {})
        # Of equally frequent ones the latest comes first.
        best = heapq.nlargest(top_k, followers.items(), key=lambda item: (len(item[1]), item[1][-1]))
        depth = min(depth, self._following_count)
        nodes: dict[tuple[int, ...], int] = {(): 0}  # by the tokens after the first
        ranks = [0]
        for rank, (following, _) in enumerate(best):
            for end in range(1, min(depth, len(following)) + 1):
                if following[:end] not in nodes and len(nodes) < most:
                    nodes[following[:end]] = len(nodes)
                    ranks.append(rank)
        counts, latest = self._count(first, nodes)
        return [
            FoundNode(
                path[-1] if path else first,
                nodes[path[:-1]] if path else -1,
                ranks[node],
                counts[node],
                latest[node],
            )
            for path, node in nodes.items()
        ]

    def _following(self, start: int) -> tuple[int, ...]:
        return tuple(self._tokens[start + 1 : start + 1 + self._following_count])

    def _count(self, first: int, nodes: dict[tuple[int, ...], int]) -> tuple[list[int], list[int]]:
        """How often each node's tokens followed ``first`` in the text, and where they did so last.

        A node is shared by all continuations that begin with its tokens, so it has the sum of their counts.
        The count of ``first`` is that of the places where anything followed it.
        """
        counts, latest = [0] * len(nodes), [0] * len(nodes)
        n = self._following_count
        # The last tokens of the text have begun continuations that are not complete yet.
        ends = range(max(len(self._tokens) - n, 0), len(self._tokens) - 1)
        begun = [(self._following(start), [start]) for start in ends if self._tokens[start] == first]
        for following, places in chain(self._places.get(first, {}).items(), begun):
            for end in range(len(following) + 1):
                node = nodes.get(following[:end])
                if node is None:
                    break
                counts[node] += len(places)
                latest[node] = max(latest[node], places[-1])
        return counts, latest
