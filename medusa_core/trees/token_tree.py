"""The candidates of one step: a tree with a token at each node, as tensors on the model's device.

Apart from the shape of a tree (``tree``), which needs no tensors. Paper §2.1.2.

N nodes with the root
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.trees.tree import ancestor_rows


@dataclass(frozen=True)
class TokenTree:
    """One step's candidates.

    tokens [N] on the device · parents, depths, heads, ranks as host lists · mask bool [N, N] on the
    device · draft_logp [N] on the device, the drafter's log-probability of each token, 0 for the root.
    ``heads[i]`` is the head that proposed node i, 0 for the root.
    """

    tokens: torch.Tensor
    parents: list[int]
    depths: list[int]
    heads: list[int]
    ranks: list[int]
    mask: torch.Tensor
    draft_logp: torch.Tensor

    @property
    def size(self) -> int:
        """Number of nodes N, the root included."""
        return len(self.parents)


def ancestor_mask(parents: Sequence[int]) -> torch.Tensor:
    """bool [N, N] from parents: a node sees its ancestors and itself."""
    return torch.tensor(ancestor_rows(parents), dtype=torch.bool)
