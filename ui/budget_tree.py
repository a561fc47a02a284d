"""A tree for a node budget: the nodes most likely to be kept, by an assumed accuracy of each guess.

The assumption stands in where nobody has measured the heads: every head is right less often than the one
before it, and its later guesses less often than its first. Medusa paper §2.3.3 with fixed numbers; measured
accuracies give a better tree. Knows nothing about models.
"""

from __future__ import annotations

import heapq

FIRST_GUESS = 0.5  # chance that head 1's first guess is kept
HEAD_DECAY = 0.8  # each further head against the one before it
RANK_POWER = 1.3  # guess number i is right 1 / i**RANK_POWER times as often as the first
RANKS = 10


def budget_tree(nodes: int, heads: int) -> list[tuple[int, ...]]:
    """The `nodes - 1` most likely rank tuples (the root is the remaining node), each with its prefixes."""
    chosen: list[tuple[int, ...]] = []
    frontier = [(-_chance(0, 0), (0,))] if heads else []
    while frontier and len(chosen) < nodes - 1:
        weight, node = heapq.heappop(frontier)
        chosen.append(node)
        depth, rank = len(node) - 1, node[-1]
        if rank + 1 < RANKS:
            sibling = weight / _chance(depth, rank) * _chance(depth, rank + 1)
            heapq.heappush(frontier, (sibling, (*node[:-1], rank + 1)))
        if depth + 1 < heads:
            heapq.heappush(frontier, (weight * _chance(depth + 1, 0), (*node, 0)))
    return chosen


def _chance(depth: int, rank: int) -> float:
    return FIRST_GUESS * HEAD_DECAY**depth / (rank + 1) ** RANK_POWER
