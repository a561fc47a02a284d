"""Trees of one shape, filled with guesses that depend on the depth alone, whatever the path to them is.

Medusa paper §2.1.2.

N nodes · B texts · V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class _Shape:
    """A tree without its guesses, and its look-up into them, on the device."""

    tree: TokenTree
    places: torch.Tensor  # [N]: where each node lies in [1 + levels · ranks], the root before the guesses


class GuessTree:
    """A topology whose node (r1, …, rk) holds guess number rk of depth k."""

    def __init__(
        self, topology: Topology, origin_of: Callable[[int, int], Origin], device: torch.device
    ) -> None:
        """``origin_of(depth, rank)`` says who proposed a node; ``device`` is where token ids go."""
        self.depth = max(topology.depths)
        self._topology = topology
        self._origin_of = origin_of
        self._device = device
        self.ranks = max(topology.ranks) + 1  # the most guesses of a level that it holds
        self._shapes: dict[int, _Shape] = {}

    def filled(self, roots: Sequence[int], depths: Sequence[int], guesses: Guesses) -> list[TokenTree]:
        """The trees below ``roots``, no deeper than ``depths``, with the guesses."""
        tokens, logp = guesses.tokens.unbind(1), guesses.logp.unbind(1)
        return [self._filled(*one) for one in zip(roots, depths, tokens, logp, strict=True)]

    @property
    def places(self) -> list[int]:
        """What each node of the tree at its full depth holds, as a number.

        0 is the root, 1 + i guess number i of [levels, ranks].
        """
        places: list[int] = self._shape(self.depth, self._device).places.tolist()
        return places

    def shape(self) -> TokenTree:
        """The tree at its full depth, with tokens and log-probabilities that mean nothing."""
        return self._shape(self.depth, self._device).tree

    def _filled(self, root: int, depth: int, guesses: torch.Tensor, logp: torch.Tensor) -> TokenTree:
        """One text's tree; ``guesses`` and their log-probabilities are [levels, ranks]."""
        shape = self._shape(min(depth, self.depth), guesses.device)
        tokens = F.pad(guesses.reshape(-1), (1, 0), value=root).index_select(0, shape.places)
        logp = F.pad(logp.reshape(-1), (1, 0)).index_select(0, shape.places)
        return replace(shape.tree, tokens=tokens.to(self._device), draft_logp=logp)

    def _shape(self, depth: int, device: torch.device) -> _Shape:
        """The shape down to ``depth``, its look-up on the device of the guesses."""
        if depth not in self._shapes:
            topology = self._topology.limited(depth)
            drafted = list(zip(topology.depths[1:], topology.ranks[1:], strict=True))
            origins = [ROOT, *(self._origin_of(level, rank) for level, rank in drafted)]
            self._shapes[depth] = _Shape(
                TokenTree.from_lists([0] * topology.size, topology.parents, origins, device=self._device),
                torch.tensor(
                    [0, *(1 + (level - 1) * self.ranks + rank for level, rank in drafted)],
                    dtype=torch.long,
                    device=device,
                ),
            )
        return self._shapes[depth]
