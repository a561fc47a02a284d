"""The candidates of one step: a tree with a token at each node, as tensors on the model's device.

The shape of a tree needs no tensors and lies apart, in ``tree``. Paper §2.1.2.

N nodes with the root · V vocabulary
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from medusa_core.trees.origin import Origin
from medusa_core.trees.tree import ancestor_mask, depths_of


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
        *,
        draft_logp: torch.Tensor | None = None,
    ) -> TokenTree:
        """A tree whose tokens are known on the host.

        ``draft_p`` [N], above 0 and 1 for the root, are what the page shows as q: how likely the drafter
        finds each token after those above it. Where it copies, that is a share of the places found in the
        text. Left out they are 1, or what ``draft_logp`` [N] says.
        """
        if draft_logp is None:
            shares = draft_p if draft_p is not None else [1.0] * len(tokens)
            draft_logp = torch.tensor(shares, dtype=torch.float32, device=device).log()
        return cls(
            tokens=torch.tensor(tokens, device=device),
            parents=list(parents),
            depths=depths_of(parents),
            origins=list(origins),
            mask=torch.from_numpy(ancestor_mask(parents)).to(device),
            draft_logp=draft_logp,
        )

    @property
    def size(self) -> int:
        """Number of nodes N, the root included."""
        return len(self.parents)


def union(trees: Sequence[TokenTree]) -> TokenTree:
    """The tree of all paths of ``trees``, which share their root token.

    The nodes of the first come first, in their order; of a node that several trees have, origin and
    log-probability are the first's, and so are the rows that a drafter saw. Distributions that children were
    drawn from are not kept.
    """
    known: dict[tuple[int, int], int] = {}  # (parent, token) → node
    tokens: list[int] = []
    parents: list[int] = []
    kept: list[tuple[int, int]] = []  # per node: which tree, and which node there
    for which, tree in enumerate(trees):
        places: list[int] = []  # per node of this tree: its node in the union
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents, strict=True)):
            key = (places[parent] if parent >= 0 else -1, token)
            if key not in known:
                known[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
                kept.append((which, node))
            places.append(known[key])
    first = trees[0]
    starts = [0, *itertools.accumulate(tree.size for tree in trees)]
    rows = torch.tensor([starts[which] + node for which, node in kept], device=first.draft_logp.device)
    logp = torch.cat([tree.draft_logp.to(first.draft_logp) for tree in trees])
    origins = [trees[which].origins[node] for which, node in kept]
    made = TokenTree.from_lists(tokens, parents, origins, device=first.tokens.device, draft_logp=logp[rows])
    seen = next((tree.drafter_rows for tree in trees if tree.drafter_rows is not None), None)
    return replace(made, drafter_rows=seen)
