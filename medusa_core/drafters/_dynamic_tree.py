"""Trees grown anew in each step from guesses that depend on the depth alone: the likeliest combinations stay.

A combination is as likely as the product of its guesses' probabilities, as if levels did not depend on one
another. EAGLE-2 (§4.1) grows such trees from guesses that do depend on those above them.

N nodes · B texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import torch

from medusa_core.drafters._guess_tree import Guesses
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree


class _Node(NamedTuple):
    """A node; sorted by its fields, nodes stand level by level, the likeliest of each level first."""

    level: int
    number: int  # rank by likelihood among all nodes; 0 is the root
    parent: int  # number
    rank: int


@dataclass(frozen=True)
class DynamicTree:
    """At most ``nodes`` nodes below a root, in ``depth`` levels of which each has ``ranks`` guesses.

    In each level as many of the likeliest nodes go on as a node has guesses, as in EAGLE-2.
    """

    nodes: int
    depth: int
    ranks: int
    origin_of: Callable[[int, int], Origin]  # who proposed the guess of a depth and a rank
    device: torch.device  # device of the token ids

    def filled(self, roots: Sequence[int], depths: Sequence[int], guesses: Guesses) -> list[TokenTree]:
        """The trees below ``roots``, no deeper than ``depths``."""
        # On the host: a few dozen nodes are found there before a GPU has launched the first of many kernels.
        tokens, logp = guesses.tokens.transpose(0, 1).tolist(), guesses.logp.transpose(0, 1).tolist()
        return [
            self._below(root, min(depth, self.depth), own, own_logp, guesses.logp.device)
            for root, depth, own, own_logp in zip(roots, depths, tokens, logp, strict=True)
        ]

    def _below(
        self,
        root: int,
        depth: int,
        tokens: Sequence[Sequence[int]],
        logp: Sequence[Sequence[float]],
        device: torch.device,
    ) -> TokenTree:
        """The tree of ``tokens`` and their log-probabilities, [levels, ranks]; ``device`` is the latter's."""
        found = sorted(self._likeliest(logp[:depth]))
        places = {0: 0} | {node.number: place for place, node in enumerate(found, start=1)}
        parents = [-1, *(places[node.parent] for node in found)]
        own = [0.0, *(logp[node.level - 1][node.rank] for node in found)]
        return TokenTree.from_lists(
            [root, *(tokens[node.level - 1][node.rank] for node in found)],
            parents,
            [ROOT, *(self.origin_of(node.level, node.rank) for node in found)],
            device=self.device,
            draft_logp=torch.tensor(own, dtype=torch.float32, device=device),
        )

    def _likeliest(self, logp: Sequence[Sequence[float]]) -> list[_Node]:
        """The nodes below the root, the likeliest first.

        A node is at most as likely as its parent and as the guess before it, so the likeliest missing node is
        a first guess below a node that was found, or the next guess beside one.
        """
        found: list[_Node] = []
        going_on = [0] * (len(logp) + 1)
        waiting = [(-logp[0][0], 0, 0, 1)] if logp else []  # cost −Σ log p, parent, rank and level
        while waiting and len(found) < self.nodes:
            cost, parent, rank, level = heappop(waiting)
            guesses, number = logp[level - 1], len(found) + 1
            found.append(_Node(level, number, parent, rank))
            if rank + 1 < self.ranks:
                heappush(waiting, (cost + guesses[rank] - guesses[rank + 1], parent, rank + 1, level))
            if level < len(logp) and going_on[level] < self.ranks:
                going_on[level] += 1
                heappush(waiting, (cost - logp[level][0], number, 0, level + 1))
        return found
