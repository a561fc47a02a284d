"""Rows of a candidate tree for drawing: leaves one below the other, inner nodes centred on their children.

Knows parents and nothing else; the column of a node is its depth, which the trace already carries.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx


def tree_rows(parents: Sequence[int]) -> list[float]:
    """Row of each node. `parents[i] < i`, and only the root (node 0) has parent -1."""
    tree = _tree_of(parents)
    rows = [0.0] * len(parents)
    next_row = 0
    for node in nx.dfs_postorder_nodes(tree, source=0):  # children come before their parent
        children = list(tree.successors(node))
        if children:
            rows[node] = (rows[children[0]] + rows[children[-1]]) / 2
        else:
            rows[node] = float(next_row)
            next_row += 1
    return rows


def _tree_of(parents: Sequence[int]) -> nx.DiGraph:
    if not parents or parents[0] != -1:
        raise ValueError(f"node 0 must be the root with parent -1, got parents {list(parents[:4])}")
    tree = nx.DiGraph()
    tree.add_nodes_from(range(len(parents)))
    for node, parent in enumerate(parents[1:], start=1):
        if not 0 <= parent < node:
            raise ValueError(f"node {node} has parent {parent}; a parent comes before its children")
        tree.add_edge(parent, node)
    return tree
