"""Several trees of one step as one, in which each sequence of tokens stands once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.trees.token_tree import TokenTree, ancestor_mask


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
    device = first.tokens.device
    starts = [0]
    for tree in trees:
        starts.append(starts[-1] + tree.size)
    rows = torch.tensor([starts[which] + node for which, node in kept], device=first.draft_logp.device)
    logp = torch.cat([tree.draft_logp.to(first.draft_logp) for tree in trees])
    return TokenTree(
        tokens=torch.tensor(tokens, device=device),
        parents=parents,
        depths=[trees[which].depths[node] for which, node in kept],
        origins=[trees[which].origins[node] for which, node in kept],
        mask=ancestor_mask(parents).to(device),
        draft_logp=logp[rows],
        drafter_rows=next((tree.drafter_rows for tree in trees if tree.drafter_rows is not None), None),
    )
