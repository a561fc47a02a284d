"""``tree show`` and ``tree search``: a tree's nodes, mask and paths; the best tree for a node budget."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters._head_trees import DYNAMIC, dynamic_nodes, is_dynamic
from medusa_core.drafters.medusa import AUTO, DEFAULT, medusa_draft
from medusa_core.errors import MedusaError, counted
from medusa_core.library_messages import importing
from medusa_core.trees.search import read_accuracies, search_tree
from medusa_core.trees.tree import Topology, load_tree

if TYPE_CHECKING:
    from medusa_core.trees.budget import Budget


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("tree", help="inspect candidate trees", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print a tree", description=__doc__)
    show.add_argument(
        "tree",
        help="default (shipped with the embedded heads), auto (the fastest with them on this machine), "
        "a published name, cartesian-4x2x1 or FILE.json",
    )
    show.add_argument(
        "--json", action="store_true", help="print nodes, choices, parents, depths, mask and paths"
    )
    show.set_defaults(run=f"{__name__}:run_show")
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
    search.set_defaults(run=f"{__name__}:run_search")


_TABLE_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def run_search(args: argparse.Namespace) -> None:
    """Search and print. Raises MedusaError for bad accuracies or an impossible budget."""
    from medusa_core.trees.budget import best_budget, budgets, read_latency

    accuracies = read_accuracies(Path(args.accuracies))
    found: list[Budget] = []
    if args.nodes == AUTO:
        found = budgets(accuracies, read_latency(Path(args.latency or args.accuracies)), args.max_depth)
        nodes = best_budget(found).nodes - 1
        _print_budgets(found, sys.stderr if args.json else sys.stdout)
    else:
        try:
            nodes = int(args.nodes)
        except ValueError as error:
            wrong = f"--nodes is {args.nodes!r}"
            raise MedusaError(f"{wrong}: give a number of drafted nodes, or {AUTO}") from error
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
        print(drawing(Topology.from_choices(tree.choices)))


def _print_budgets(found: Sequence[Budget], stream: TextIO) -> None:
    """Some of the budgets, the best one marked; a warning where plain decoding is expected to be faster."""
    from medusa_core.cli.tables import new_table, wide_console
    from medusa_core.trees.budget import best_budget, plain_budget

    best, plain = best_budget(found), plain_budget(found)
    sizes = {*_TABLE_SIZES, best.nodes, found[-1].nodes}
    names = ("drafted\nnodes", "expected\ntokens/step", "ms/step", "expected\ntokens/s", "")
    table = new_table(*names)
    for budget in found:
        if budget.nodes in sizes:
            table.add_row(
                str(budget.nodes - 1), f"{budget.expected_length:.3f}", f"{budget.step_ms:.2f}",
                f"{budget.tokens_per_second:.1f}",
                "best" if budget == best else "plain decoding" if budget == plain else "",
            )  # fmt: skip
    wide_console(stream).print(table)
    if plain and plain.tokens_per_second >= best.tokens_per_second:
        print(
            f"warning: plain decoding is expected to be faster here: {plain.tokens_per_second:.1f} tokens/s "
            f"against {best.tokens_per_second:.1f} of the best tree", file=sys.stderr,
        )  # fmt: skip


def run_show(args: argparse.Namespace) -> None:
    """Print the tree. Raises MedusaError for an unknown name or a faulty file."""
    # The heads are loaded for their own trees, which takes torch.
    of_heads = (AUTO, DEFAULT)
    if is_dynamic(args.tree):
        name = f"{DYNAMIC}{dynamic_nodes(args.tree)}"
        raise MedusaError(f"{name} changes with each step: use generate --tree {name} --trace FILE.json")
    tree = tree_of_heads(args.tree) if args.tree in of_heads else load_tree(args.tree, besides=of_heads)
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
    import networkx as nx

    graph = nx.DiGraph()
    for node, parent in enumerate(tree.parents):
        label = f"head {tree.depths[node]}, guess {tree.ranks[node] + 1}" if node else "root"
        graph.add_node(node, label=f"{label}  (node {node})")
        if node:
            graph.add_edge(parent, node)
    per_depth = [tree.depths.count(depth) for depth in range(1, max(tree.depths) + 1)]
    nodes, paths = counted(tree.size, "node"), counted(len(tree.paths()), "path")
    title = f"{nodes} with the root, by depth {per_depth}, {paths}"
    return "\n".join([title, *nx.generate_network_text(graph)])


def tree_of_heads(name: str) -> Topology:
    """The tree that a run with the embedded model takes; for auto a line on standard error says why."""
    with importing():
        from medusa_core.cli.load import load_for_runs
        from medusa_core.evaluation.step_times import auto_tree_words
        from medusa_core.loading.tuning import MEASURE_VARIABLE, may_measure

    config = GenerationConfig.of(method="medusa", tree=name)
    engine = load_for_runs(LoadConfig(), [config])
    draft = medusa_draft(engine)
    if name == AUTO:
        fix = "repeat it when the machine is idle" if may_measure() else f"unset {MEASURE_VARIABLE}"
        why = f"note: no step times are measured, so auto is the default tree: {fix}"
        print(auto_tree_words(engine, config) if draft.fastest else why, file=sys.stderr)
    return draft.tree(name)
