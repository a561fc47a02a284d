"""The dynamic tree of EAGLE-2 and EAGLE-3: grown level by level where the drafter is most certain, then cut.

Level 1 holds the root's best guesses. From each level the most probable nodes go on, each to its best
guesses; in the end the most probable of all guesses stay, also those from which nothing grew. A node is as
probable as the product of the drafter's probabilities on its path, so it never beats its parent.
EAGLE-2 paper §4.1 and §4.2.

k guesses a node and nodes a level · V' draft vocabulary · N drafted nodes that stay
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

# Draft tokens [k], each one's row in the level before, and which nodes of all levels so far it sees, itself
# among them, bool [k, levels · k] → log-probabilities of what follows, [k, V'].
Expand = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Grown(NamedTuple):
    """The tree below a root, on the device: a parent always stands before its children, 0 is the root.

    ``tokens`` [N] are draft tokens, ``logp`` [N] each one's own log-probability after its path. ``places``
    [2, N] are the numbers of the parents, and each one's rank among its parent's guesses.
    """

    tokens: torch.Tensor
    logp: torch.Tensor
    places: torch.Tensor


def grow(first: torch.Tensor, expand: Expand, top_k: int, levels: int, nodes: int) -> Grown:
    """A tree of ``nodes`` from the root's log-probabilities ``first`` [V'], at most ``levels`` deep."""
    k = min(top_k, len(first))
    logp, tokens = first.topk(k)
    # All guesses in one list: level 1, then for each further level the guesses of its k nodes, row by row.
    all_tokens, all_logp, all_sums = [tokens], [logp], [logp]
    all_parents = [torch.full_like(tokens, -1)]
    sums, places = logp, torch.arange(k, device=first.device)
    rows, own = places, torch.eye(k, dtype=torch.bool, device=first.device)
    seen, listed = own, k
    for level in range(1, levels):
        logp, guesses = expand(tokens, rows, seen).topk(k)  # [k, k]
        table = (sums[:, None] + logp).flatten()
        all_tokens.append(guesses.flatten())
        all_logp.append(logp.flatten())
        all_sums.append(table)
        all_parents.append(places.repeat_interleave(k))
        if level + 1 < levels:
            sums, best = table.topk(k)
            rows, tokens = best // k, guesses.flatten()[best]
            places, listed = best + listed, listed + k * k
            seen = torch.cat([seen[rows], own], dim=1)
    # Of equals the first in the list comes first, so that no node stays without its parent.
    order = torch.cat(all_sums).sort(descending=True, stable=True).indices
    kept = order[:nodes].sort().values
    parents = torch.searchsorted(kept, torch.cat(all_parents)[kept]) + 1
    places = torch.stack([torch.where(kept < k, 0, parents), kept % k])
    return Grown(torch.cat(all_tokens)[kept], torch.cat(all_logp)[kept], places)


def log_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of ``logits``, in float32."""
    return logits.float().log_softmax(dim=-1)
