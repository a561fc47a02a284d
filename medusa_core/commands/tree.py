"""``tree show`` and ``tree search``: a tree's nodes, mask and paths; the best tree for a node budget."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import networkx as nx
from rich.console import Console
from rich.table import Table

from medusa_core.budget import Budget, best_budget, budgets, plain_budget, read_latency
from medusa_core.errors import MedusaError
from medusa_core.plural import counted
from medusa_core.tree import Topology, load_tree
from medusa_core.tree_search import read_accuracies, search_tree

AUTO = "auto"
_TABLE_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


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
    search.add_argument(
        "--nodes", default="16",
        help="drafted nodes, without the root (default: 16); auto: as many as give the most expected tokens "
        "per second by a measured latency",
    )  # fmt: skip
    search.add_argument(
        "--latency", metavar="FILE.json",
        help="latency of --nodes auto, as `calibrate` writes it (default: the file of --accuracies)",
    )  # fmt: skip
    search.add_argument("--max-depth", type=int, help="deepest node (default: the number of heads)")
    search.add_argument("--json", action="store_true", help="print choices and expected length")
    search.set_defaults(run=run_search)


def run_show(args: argparse.Namespace) -> None:
    """Print the tree. Raises MedusaError for an unknown name or a faulty file."""
    tree = load_tree(args.tree)
    print(json.dumps(tree_record(tree)) if args.json else _drawing(tree))


def run_search(args: argparse.Namespace) -> None:
    """Search and print. Raises MedusaError for bad accuracies or an impossible budget."""
    accuracies = read_accuracies(Path(args.accuracies))
    found: list[Budget] = []
    if args.nodes == AUTO:
        found = budgets(accuracies, read_latency(Path(args.latency or args.accuracies)), args.max_depth)
        nodes = best_budget(found).nodes - 1
        _print_budgets(found, sys.stderr if args.json else sys.stdout)
    else:
        nodes = _number_of_nodes(args.nodes)
    tree = search_tree(accuracies, nodes, args.max_depth)
    if args.json:
        choices = [list(choice) for choice in tree.choices]
        record = {"choices": choices, "expected_length": round(tree.expected_length, 4)}
        if found:
            best = best_budget(found)
            record |= {
                "step_ms": round(best.step_ms, 4),
                "expected_tokens_per_second": round(best.tokens_per_second, 2),
            }
        print(json.dumps(record))
    else:
        print(f"expected tokens per step {tree.expected_length:.3f}")
        print(_drawing(Topology.from_choices(tree.choices)))


def _number_of_nodes(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise MedusaError(f"--nodes is {text!r}: give a number of drafted nodes, or {AUTO}") from error


def _print_budgets(found: Sequence[Budget], stream: TextIO) -> None:
    """Some of the budgets, the best one marked; a warning where plain decoding is expected to be faster."""
    best, plain = best_budget(found), plain_budget(found)
    sizes = {*_TABLE_SIZES, best.nodes, found[-1].nodes}
    table = Table("drafted nodes", "expected tokens/step", "ms/step", "expected tokens/s", "")
    for budget in found:
        if budget.nodes in sizes:
            table.add_row(
                str(budget.nodes - 1), f"{budget.expected_length:.3f}", f"{budget.step_ms:.2f}",
                f"{budget.tokens_per_second:.1f}",
                "best" if budget == best else "plain decoding" if budget == plain else "",
            )  # fmt: skip
    Console(file=stream, width=max(Console().width, 100)).print(table)
    if plain and plain.tokens_per_second >= best.tokens_per_second:
        print(
            f"warning: plain decoding is expected to be faster here: {plain.tokens_per_second:.1f} tokens/s "
            f"against {best.tokens_per_second:.1f} of the best tree", file=sys.stderr,
        )  # fmt: skip


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
    title = f"{tree.size} nodes with the root, by depth {per_depth}, {counted(len(tree.paths()), 'path')}"
    return "\n".join([title, *nx.generate_network_text(graph)])
