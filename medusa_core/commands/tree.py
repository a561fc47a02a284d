"""``tree show`` and ``tree search``: a tree's nodes, mask and paths; the best tree for a node budget."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import networkx as nx

from medusa_core.tree import Topology, load_tree
from medusa_core.tree_search import read_accuracies, search_tree


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser("tree", help="inspect candidate trees", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print a tree", description=__doc__)
    show.add_argument("tree", help="published name, cartesian-4x2x1 or FILE.json")
    show.add_argument(
        "--json", action="store_true", help="print nodes, choices, parents, depths, mask and paths"
    )
    show.set_defaults(run=run_show)
    search = actions.add_parser("search", help="the best tree for a node budget")
    search.add_argument("--accuracies", required=True, metavar="FILE.json", help="as `calibrate` writes them")
    search.add_argument("--nodes", type=int, default=16, help="drafted nodes, without the root (default: 16)")
    search.add_argument("--max-depth", type=int, help="deepest node (default: the number of heads)")
    search.add_argument("--json", action="store_true", help="print choices and expected length")
    search.set_defaults(run=run_search)


def run_show(args: argparse.Namespace) -> None:
    """Print the tree. Raises MedusaError for an unknown name or a faulty file."""
    tree = load_tree(args.tree)
    print(json.dumps(tree_record(tree)) if args.json else _drawing(tree))


def run_search(args: argparse.Namespace) -> None:
    """Search and print. Raises MedusaError for bad accuracies or an impossible budget."""
    found = search_tree(read_accuracies(Path(args.accuracies)), args.nodes, args.max_depth)
    if args.json:
        choices = [list(choice) for choice in found.choices]
        print(json.dumps({"choices": choices, "expected_length": round(found.expected_length, 4)}))
    else:
        print(f"expected tokens per step {found.expected_length:.3f}")
        print(_drawing(Topology.from_choices(found.choices)))


def tree_record(tree: Topology) -> dict:
    """The tree as plain lists; nodes are sorted by (depth, ranks), node 0 is the root."""
    return {
        "nodes": tree.size,
        "choices": [list(choice) for choice in tree.choices],
        "parents": tree.parents,
        "depths": tree.depths,
        "mask": tree.mask().int().tolist(),
        "paths": tree.paths(),
    }


def _drawing(tree: Topology) -> str:
    graph = tree.graph()
    for node in graph:
        label = "root" if node == 0 else f"head {tree.depths[node]} · rank {tree.ranks[node]}"
        graph.nodes[node]["label"] = f"{label}  (node {node})"
    per_depth = [tree.depths.count(depth) for depth in range(1, max(tree.depths) + 1)]
    title = f"{tree.size} nodes with the root, by depth {per_depth}, {len(tree.paths())} paths"
    return "\n".join([title, *nx.generate_network_text(graph)])
