"""The candidates of one step: a tree with a token at each node, as tensors on the model's device.

Apart from the shape of a tree (``tree``), which needs no tensors. Paper §2.1.2.

N nodes with the root · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.trees.origin import Origin
from medusa_core.trees.tree import ancestor_rows, depths_of


@dataclass(frozen=True)
class TokenTree:
    """One step's candidates.

    tokens [N] on the device · parents, depths and origins as host lists · mask bool [N, N] on the device ·
    draft_logp [N] on the device, the drafter's log-probability of each token, 0 for the root ·
    draft_probs [N, V] for a drafter that samples: the distribution a node's children were drawn from ·
    drafter_rows, for a drafter that reads a part of the target's cache: which rows at least one of its layers
    saw, as rising ranges [start, end).
    """

    tokens: torch.Tensor
    parents: list[int]
    depths: list[int]
    origins: list[Origin]
    mask: torch.Tensor
    draft_logp: torch.Tensor
    draft_probs: torch.Tensor | None = None
    drafter_rows: Sequence[tuple[int, int]] | None = None

    @classmethod
    def from_lists(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        origins: Sequence[Origin],
        draft_p: Sequence[float] | None = None,
        device: torch.device | str = "cpu",
    ) -> TokenTree:
        """A tree whose tokens are known on the host. ``draft_p`` [N]: 1 for the root."""
        shares = torch.tensor(draft_p if draft_p is not None else [1.0] * len(tokens), device=device)
        return cls(
            tokens=torch.tensor(tokens, device=device),
            parents=list(parents),
            depths=depths_of(parents),
            origins=list(origins),
            mask=ancestor_mask(parents).to(device),
            draft_logp=shares.log(),
        )

    @property
    def size(self) -> int:
        """Number of nodes N, the root included."""
        return len(self.parents)


def ancestor_mask(parents: Sequence[int]) -> torch.Tensor:
    """bool [N, N] from parents: a node sees its ancestors and itself."""
    return torch.tensor(ancestor_rows(parents), dtype=torch.bool)
