"""Trees grown anew in each step from guesses that depend on the depth alone: the likeliest combinations stay.

A combination is as likely as the product of its guesses' probabilities, as if levels did not depend on one
another. EAGLE-2 paper §4.1 grows such trees of guesses that do.

N nodes · B texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from medusa_core.drafters._guess_tree import Guesses
from medusa_core.drafters.eagle3.grow import grow
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree, ancestor_mask
from medusa_core.trees.tree import depths_of


@dataclass(frozen=True)
class DynamicTree:
    """At most ``nodes`` nodes below a root, in ``depth`` levels of which each has ``ranks`` guesses."""

    nodes: int
    depth: int
    ranks: int
    origin_of: Callable[[int, int], Origin]  # who proposed the guess of a depth and a rank
    device: torch.device  # device of the token ids

    def filled(self, roots: Sequence[int], depths: Sequence[int], guesses: Guesses) -> list[TokenTree]:
        """The trees below ``roots``, no deeper than ``depths``."""
        found = zip(guesses.tokens.unbind(1), guesses.logp.unbind(1), strict=True)
        return [
            self._below(root, min(depth, self.depth), *one)
            for root, depth, one in zip(roots, depths, found, strict=True)
        ]

    def _below(self, root: int, depth: int, tokens: torch.Tensor, logp: torch.Tensor) -> TokenTree:
        """Of ``tokens`` and their log-probabilities, [levels, ranks]."""
        if depth < 1:
            return TokenTree.from_lists([root], [-1], [ROOT], device=self.device)
        level = iter(logp[1:])  # every node of a level has the same guesses
        grown = grow(
            logp[0], lambda ranks, *_: next(level).expand(len(ranks), -1), self.ranks, depth, self.nodes
        )
        parents, of_level = [-1, *grown.parents], tokens.tolist()
        depths = depths_of(parents)
        places = list(zip(depths[1:], grown.tokens.tolist(), strict=True))
        return TokenTree(
            tokens=torch.tensor([root, *(of_level[d - 1][rank] for d, rank in places)], device=self.device),
            parents=parents,
            depths=depths,
            origins=[ROOT, *(self.origin_of(*place) for place in places)],
            mask=ancestor_mask(parents).to(self.device),
            draft_logp=F.pad(grown.logp, (1, 0)),
        )
