"""What every rule shares: from "which nodes pass" to "which path is kept".

A node is alive when it and all its ancestors pass; the deepest alive node's ancestors are the accepted path
(paper §2.3.1). Of several, the one with the larger sum of log p counts, as in the public code; where that
ties too, or the rule has no p, the one with the smaller node id. The root is always alive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.acceptance.sampling import entropy, probabilities
from medusa_core.trees.tree import path_to

if TYPE_CHECKING:
    import torch

    from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class NodeStatistics:
    """The target's numbers at each node's parent: p of the node's token, entropy in nats. [N] each.

    The root was judged a step ago and holds NaN.
    """

    p: list[float]
    entropy: list[float]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one step: path (root first), the next root, and what each of N nodes was judged by.

    All lists but ``path`` and ``accepted`` have N entries, the root's first; the root always passes. Trace
    and page show ``reasons`` in place of "accepted" and ``failure``; the page draws a node whose reason
    begins with "not tried" as untried.
    """

    path: list[int]
    accepted: list[int]  # tokens of the path
    bonus: int
    passes: list[bool]
    failure: str  # why a node does not pass, in the rule's words
    statistics: NodeStatistics | None = None  # None when the rule did not need them
    threshold: list[float] | None = None  # None when the rule compares tokens, not probabilities
    reasons: list[str] | None = None  # one for each node in the rule's words, for rules that give them


def statistics_beside(
    tree: TokenTree, logits: torch.Tensor, temperature: float, *beside: torch.Tensor
) -> tuple[NodeStatistics, list[list[int]]]:
    """p and entropy at each node's parent under softmax(logits / temperature); logits [N, V].

    ``beside``, tokens [N] each, come along in the same transfer to the host.
    """
    inner = sorted({max(parent, 0) for parent in tree.parents})
    rows = {node: row for row, node in enumerate(inner)}
    # Only rows with children judge a node; leaving the leaves out halves the softmax, the costly part.
    tokens = tree.tokens.to(logits.device)
    probs = probabilities(logits.index_select(0, tokens.new_tensor(inner)), temperature)
    parents = tokens.new_tensor([rows[max(parent, 0)] for parent in tree.parents])
    # Float32 holds every token: vocabularies are smaller than 2**24.
    all_rows = probs.new_empty(2 + len(beside), tree.size)
    all_rows[0], all_rows[1] = probs[parents, tokens], entropy(probs)[parents]
    for number, row in enumerate(beside, start=2):
        all_rows[number] = row
    p, entropies, *others = all_rows.tolist()
    p[0] = entropies[0] = math.nan
    return NodeStatistics(p=p, entropy=entropies), [[int(token) for token in row] for row in others]


def alive_nodes(parents: Sequence[int], passes: Sequence[bool]) -> list[bool]:
    """Which nodes pass together with all their ancestors."""
    alive = [True] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            alive[node] = alive[parent] and passes[node]
    return alive


def longest_path(tree: TokenTree, passes: Sequence[bool], p: Sequence[float] | None) -> list[int]:
    """Node ids of the accepted path, root first."""
    nodes = [node for node, alive in enumerate(alive_nodes(tree.parents, passes)) if alive]
    if p is None:  # of equals ``max`` takes the first, which has the smallest id
        return path_to(max(nodes, key=tree.depths.__getitem__), tree.parents)
    score = [0.0] * tree.size
    for node in nodes[1:]:
        score[node] = score[tree.parents[node]] + math.log(max(p[node], 1e-38))
    return path_to(max(nodes, key=lambda node: (tree.depths[node], score[node])), tree.parents)
