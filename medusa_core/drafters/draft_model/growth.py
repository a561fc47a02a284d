"""Which nodes a draft gets, level by level, from the distributions of the model that drafts.

Without drawing, each level goes on behind its likeliest nodes with the likeliest tokens, and of everything
found the nodes with the largest product of probabilities stay: EAGLE-2's tree. With drawing, how many
children a node gets is settled before they are drawn, and nothing drawn is left out afterwards: a choice by
what was drawn would change the distribution that the acceptance rule relies on. Chen et al., 2023; Li et
al., 2024 (arXiv 2406.16858).

N nodes · R rows · V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from medusa_core.acceptance.sampling import Sampling


@dataclass
class Growth:
    """A tree as it grows below a root: per node its token, parent, rank, log q and that of its path."""

    tokens: list[int]  # at first the root's alone
    branches: int
    limit: int  # drafted nodes, the root not counted
    sampling: Sampling | None = None
    parents: list[int] = field(default_factory=lambda: [-1])
    ranks: list[int] = field(default_factory=lambda: [0])
    logp: list[float] = field(default_factory=lambda: [0.0])
    path_logp: list[float] = field(default_factory=lambda: [0.0])
    children: dict[tuple[int, int], int] = field(default_factory=dict)  # (node, token) → node
    drawn_from: dict[int, torch.Tensor] = field(default_factory=dict)  # node → q [V] of its children
    _level: list[int] = field(default_factory=lambda: [0])  # nodes of the level that was added last

    def expand(self, nodes: Sequence[int], logits: torch.Tensor) -> None:
        """Add the children of ``nodes``, after which the model said ``logits`` [R, V]."""
        self._level = []
        count = min(self.branches, self.limit, logits.shape[-1])
        if self.sampling is not None:
            self._draw(nodes, logits, count, self.sampling)
            return
        values, guesses = logits.float().log_softmax(dim=-1).topk(count, dim=-1)
        for node, row, tokens in zip(nodes, values.tolist(), guesses.tolist(), strict=True):
            for rank, (logp, token) in enumerate(zip(row, tokens, strict=True)):
                if logp > -math.inf:
                    self._add(node, token, rank, logp)

    def next_nodes(self) -> list[int]:
        """The nodes of the last level that are worth going on from, as they were added."""
        if self.sampling is None:
            kept = set(self.kept())
            found = [node for node in self._level if node in kept]
        else:
            found = self._level if len(self.tokens) <= self.limit else []
        best = sorted(found, key=lambda node: (-self.path_logp[node], node))[: self.branches]
        return sorted(best)

    def kept(self) -> list[int]:
        """The nodes of the finished tree, the root first, each behind its parent."""
        if self.sampling is not None or len(self.tokens) <= self.limit + 1:
            return list(range(len(self.tokens)))
        # No path is likelier than a part of it, so the parents of nodes that stay do so too.
        drafted = sorted(range(1, len(self.tokens)), key=lambda node: (-self.path_logp[node], node))
        return [0, *sorted(drafted[: self.limit])]

    def _draw(self, nodes: Sequence[int], logits: torch.Tensor, count: int, sampling: Sampling) -> None:
        probs = sampling.probabilities(logits)
        for row, node in enumerate(nodes):
            room = self.limit + 1 - len(self.tokens)
            if room <= 0:
                return
            self.drawn_from[node] = q = probs[row]
            drawn = sampling.draw(q, min(count, room))
            for rank, (token, logp) in enumerate(zip(drawn.tolist(), q[drawn].log().tolist(), strict=True)):
                self._add(node, token, rank, logp)

    def _add(self, parent: int, token: int, rank: int, logp: float) -> None:
        node = self.children[parent, token] = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.ranks.append(rank)
        self.logp.append(logp)
        self.path_logp.append(self.path_logp[parent] + logp)
        self._level.append(node)
