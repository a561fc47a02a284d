"""Trees of one shape, filled with guesses that depend on the depth alone, whatever the path to them is.

The leading underscore keeps this module out of the list of drafters. Medusa paper §2.1.2.

N nodes · B texts · V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

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
    certain: torch.Tensor  # [1], the root's log-probability


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
        tokens, logp = guesses.tokens, guesses.logp
        return [
            self._filled(self._shape(min(depth, self.depth), tokens.device), root, tokens[:, b], logp[:, b])
            for b, (root, depth) in enumerate(zip(roots, depths, strict=True))
        ]

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

    def on_device(self, root: torch.Tensor, guesses: Guesses) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities of all nodes below ``root`` [1], of one text: [N] each."""
        shape = self._shape(self.depth, guesses.tokens.device)
        return _looked_up(shape, root, guesses.tokens, guesses.logp)

    def _filled(self, shape: _Shape, root: int, guesses: torch.Tensor, logp: torch.Tensor) -> TokenTree:
        """One text's tree; ``guesses`` and their log-probabilities are [levels, ranks]."""
        tokens, logp = _looked_up(shape, guesses.new_tensor([root]), guesses, logp)
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
                torch.zeros(1, dtype=torch.float32, device=device),
            )
        return self._shapes[depth]


def _looked_up(
    shape: _Shape, root: torch.Tensor, guesses: torch.Tensor, logp: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.cat([root, guesses.reshape(-1)])
    logp = torch.cat([shape.certain, logp.reshape(-1)])
    return tokens.index_select(0, shape.places), logp.index_select(0, shape.places)
