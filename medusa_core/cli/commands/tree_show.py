"""What ``tree show`` does."""

from __future__ import annotations

import argparse
import json
import pkgutil

import networkx as nx

from medusa_core.drafters._head_trees import AUTO, DEFAULT
from medusa_core.text.plural import counted
from medusa_core.trees.tree import Topology, load_tree


def run(args: argparse.Namespace) -> None:
    """Print the tree. Raises MedusaError for an unknown name or a faulty file."""
    if args.tree in (AUTO, DEFAULT):  # the heads are loaded, which takes torch
        tree = pkgutil.resolve_name("medusa_core.cli.commands.tree_of_heads:tree_of_heads")(args.tree)
    else:
        tree = load_tree(args.tree)
    print(json.dumps(tree_record(tree)) if args.json else drawing(tree))


def tree_record(tree: Topology) -> dict:
    """The tree as plain lists; nodes are sorted by (depth, ranks), node 0 is the root."""
    return {
        "nodes": tree.size,
        "choices": [list(choice) for choice in tree.choices],
        "parents": tree.parents,
        "depths": tree.depths,
        "mask": [list(map(int, row)) for row in tree.mask()],
        "paths": tree.paths(),
    }


def drawing(tree: Topology) -> str:
    """The tree as lines of text, nodes by head and guess, both counted from 1 as on the page."""
    graph = tree.graph()
    for node in graph:
        label = "root" if node == 0 else f"head {tree.depths[node]}, guess {tree.ranks[node] + 1}"
        graph.nodes[node]["label"] = f"{label}  (node {node})"
    per_depth = [tree.depths.count(depth) for depth in range(1, max(tree.depths) + 1)]
    title = f"{tree.size} nodes with the root, by depth {per_depth}, {counted(len(tree.paths()), 'path')}"
    return "\n".join([title, *nx.generate_network_text(graph)])
