"""Trees to hold against the optimised one: the best cartesian tree of a size, and random connected trees.

The estimate of each is the sum of its nodes' values, as for the optimised tree; knows nothing about models.
Paper §2.1.2 (cartesian trees), §2.3.3 and figure 4a. Nodes are counted with the root.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medusa_core.errors import MedusaError
from medusa_core.trees.search import check_accuracies
from medusa_core.trees.tree import TOP_K, Choice, Topology, cartesian


@dataclass(frozen=True)
class CartesianTree:
    """All combinations of the first ``widths[k]`` guesses of head k + 1, not yet written out as nodes."""

    widths: tuple[int, ...]
    nodes: int  # the root included
    expected_length: float

    def topology(self) -> Topology:
        """The tree itself."""
        return cartesian(self.widths)


def cartesian_trees(accuracies: Sequence[Sequence[float]], most_nodes: int) -> Iterator[CartesianTree]:
    """Every cartesian tree of at most ``most_nodes`` nodes."""
    check_accuracies(accuracies)
    shares = [list(itertools.accumulate(row[:TOP_K])) for row in accuracies]

    def below(
        widths: tuple[int, ...], layer: int, nodes: int, value: float, expected: float
    ) -> Iterator[CartesianTree]:
        depth = len(widths)
        if depth == len(shares):
            return
        for width, share in enumerate(shares[depth], start=1):
            total = nodes + layer * width
            if total > most_nodes:
                return
            tree = CartesianTree((*widths, width), total, expected + value * share)
            yield tree
            yield from below(tree.widths, layer * width, total, value * share, tree.expected_length)

    yield from below((), 1, 1, 1.0, 1.0)


def best_cartesian_trees(accuracies: Sequence[Sequence[float]], most_nodes: int) -> list[CartesianTree]:
    """The cartesian trees that no smaller one equals, by size: the steps of the best one's curve.

    Of equally good trees of one size the one with the smaller widths, read from the first head on, counts.
    """
    best: list[CartesianTree] = []
    trees = cartesian_trees(accuracies, most_nodes)
    for tree in sorted(trees, key=lambda tree: (tree.nodes, -tree.expected_length, tree.widths)):
        if not best or tree.expected_length > best[-1].expected_length:
            best.append(tree)
    return best


def best_cartesian(accuracies: Sequence[Sequence[float]], nodes: int) -> CartesianTree:
    """The best cartesian tree of at most ``nodes`` nodes. Raises MedusaError when not even one fits."""
    trees = best_cartesian_trees(accuracies, nodes)
    if not trees:
        raise MedusaError(f"no cartesian tree has at most {nodes} nodes: allow 2 or more")
    return trees[-1]


def random_cartesian(
    accuracies: Sequence[Sequence[float]], above: int, most_nodes: int, count: int, seed: int
) -> list[CartesianTree]:
    """At most ``count`` cartesian trees of more than ``above`` nodes, drawn evenly among their shapes."""
    shapes = [tree for tree in cartesian_trees(accuracies, most_nodes) if tree.nodes > above]
    return random.Random(seed).sample(shapes, min(count, len(shapes)))


def random_choices(accuracies: Sequence[Sequence[float]], nodes: int, seed: int) -> list[Choice]:
    """A tree grown by one random node after the other, in the order of growth, so every start is a tree.

    Each node that could be added next, any guess below any node, is as likely as every other.
    """
    check_accuracies(accuracies)
    draw = random.Random(seed)
    grown: list[Choice] = []
    offered: list[Choice] = [(rank,) for rank in range(len(accuracies[0]))]
    while offered and len(grown) < nodes - 1:
        place = draw.randrange(len(offered))
        offered[place], offered[-1] = offered[-1], offered[place]
        node = offered.pop()
        grown.append(node)
        if len(node) < len(accuracies):
            offered += [(*node, rank) for rank in range(len(accuracies[len(node)]))]
    return grown
