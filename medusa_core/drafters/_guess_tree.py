"""Trees of one shape, filled with guesses that depend on the depth alone, whatever the path to them is.

Medusa paper §2.1.2.

N nodes · B texts · V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import Topology


@dataclass(frozen=True)
class Guesses:
    """The best tokens of each level for each text, first the likeliest: [levels, B, ranks] each."""

    tokens: torch.Tensor
    logp: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, count: int) -> Guesses:
        """The ``count`` best of logits [levels, B, V]."""
        tokens = logits.topk(count, dim=-1).indices
        return cls(tokens, logits.log_softmax(dim=-1).gather(-1, tokens))


class GuessTree:
    """A topology whose node (r1, …, rk) holds guess number rk of depth k."""

    def __init__(
        self, topology: Topology, origin_of: Callable[[int, int], Origin], device: torch.device
    ) -> None:
        """``origin_of(depth, rank)`` says who proposed a node; ``device`` is where token ids go."""
        self.depth = max(topology.depths)
        self.ranks = max(topology.ranks) + 1  # the most guesses of a level that it holds
        # What each node holds, as a number: 0 is the root, 1 + i guess number i of [levels, ranks].
        self.places = [0, *(1 + (level - 1) * self.ranks + rank for level, rank in drafted(topology))]
        self._topology = topology
        self._origin_of = origin_of
        self._device = device
        # By depth the tree and its places, on the device of the guesses.
        self._shapes: dict[int, tuple[TokenTree, torch.Tensor]] = {}

    def filled(self, roots: Sequence[int], depths: Sequence[int], guesses: Guesses) -> list[TokenTree]:
        """The trees below ``roots``, no deeper than ``depths``, with the guesses."""
        tokens, logp = guesses.tokens.unbind(1), guesses.logp.unbind(1)
        return [self._filled(*one) for one in zip(roots, depths, tokens, logp, strict=True)]

    def shape(self) -> TokenTree:
        """The tree at its full depth, with tokens and log-probabilities that mean nothing."""
        return unfilled(self._topology, self._origin_of, self._device)

    def _filled(self, root: int, depth: int, guesses: torch.Tensor, logp: torch.Tensor) -> TokenTree:
        """One text's tree; ``guesses`` and their log-probabilities are [levels, ranks]."""
        depth = min(depth, self.depth)
        if depth not in self._shapes:
            tree = unfilled(self._topology.limited(depth), self._origin_of, self._device)
            # Nodes stand level by level, so those of a shallower tree are the first ones.
            places = torch.tensor(self.places[: len(tree.parents)], device=guesses.device)
            self._shapes[depth] = tree, places
        tree, places = self._shapes[depth]
        tokens = F.pad(guesses.reshape(-1), (1, 0), value=root).index_select(0, places)
        logp = F.pad(logp.reshape(-1), (1, 0)).index_select(0, places)
        return replace(tree, tokens=tokens.to(self._device), draft_logp=logp)


def unfilled(topology: Topology, origin_of: Callable[[int, int], Origin], device: torch.device) -> TokenTree:
    """The tree with tokens and log-probabilities that mean nothing; ``origin_of(depth, rank)`` as above."""
    origins = [ROOT, *(origin_of(depth, rank) for depth, rank in drafted(topology))]
    return TokenTree.from_lists([0] * topology.size, topology.parents, origins, device=device)


def drafted(topology: Topology) -> Iterator[tuple[int, int]]:
    """Depth and rank of each node below the root."""
    return zip(topology.depths[1:], topology.ranks[1:], strict=True)
