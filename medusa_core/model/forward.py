"""What a forward of the target is given and gives back, whichever computes it.

N rows of a forward · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from medusa_core.model.features import NO_FEATURES, Features
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.token_tree import TokenTree

MOST_ROWS = 256  # rows of one forward pass over a tree, at most
# Logits [rows kept, V], hidden states [N, d] of each layer, and where they are asked for queries [N, H·D].
Outputs = tuple[torch.Tensor, list[torch.Tensor]]


@dataclass(frozen=True)
class Rows:
    """The rows of one forward, on the device, and what is wanted of them."""

    tokens: torch.Tensor  # [N]
    depths: torch.Tensor  # [N], positions behind the committed rows
    deepest: int  # the largest of them, which the host knows without reading the device
    allowed: torch.Tensor  # bool [N, N]: which sees which
    kept: int = 0  # rows at the end that get logits, 0: all
    features: Features = NO_FEATURES  # that are wanted, apart from which rows' are kept

    @classmethod
    def of_text(
        cls,
        tokens: Sequence[int],
        device: torch.device,
        kept: int = 0,
        features: Features = NO_FEATURES,
    ) -> Rows:
        """A part of a text: each row stands behind the one before and sees all up to itself."""
        count = len(tokens)
        allowed = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        depths = torch.arange(count, device=device)
        return cls(torch.tensor(tokens, device=device), depths, count - 1, allowed, kept, features)

    @classmethod
    def of_tree(cls, tree: TokenTree, device: torch.device, features: Features = NO_FEATURES) -> Rows:
        """All nodes of a tree, each of which sees its ancestors and itself."""
        depths = torch.tensor(tree.depths, device=device)
        return cls(tree.tokens.to(device), depths, max(tree.depths), tree.mask.to(device), features=features)


@dataclass(frozen=True)
class Part:
    """What one sequence of a batch has in a forward: its rows, behind the committed ones of its own cache."""

    rows: Rows
    cache: TreeCache


class Forward(Protocol):
    """What runs in the place of transformers' forward as it is."""

    def new_cache(self, slots: int) -> TreeCache:
        """A cache for one run."""

    @property
    def copied_bytes(self) -> int:
        """What it holds beside the weights of the model."""

    def cache_bytes(self, slots: int) -> int:
        """What ``new_cache`` of so many rows takes."""

    def __call__(self, rows: Rows, cache: TreeCache) -> Outputs:
        """Run the rows behind the committed ones and commit nothing.

        Raises MedusaError for a cache that ``new_cache`` has not made.
        """

    def together(self, parts: Sequence[Part]) -> list[Outputs]:
        """The same for several sequences, each of which gets what it gets alone."""
