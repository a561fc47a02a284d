"""What ``tree search`` does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from medusa_core.cli.commands.flags.tree import AUTO
from medusa_core.cli.commands.tree_show import drawing
from medusa_core.errors import MedusaError
from medusa_core.trees.budget import Budget, best_budget, budgets, plain_budget, read_latency
from medusa_core.trees.search import read_accuracies, search_tree
from medusa_core.trees.tree import Topology

_TABLE_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def run(args: argparse.Namespace) -> None:
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
        print(drawing(Topology.from_choices(tree.choices)))


def _number_of_nodes(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise MedusaError(f"--nodes is {text!r}: give a number of drafted nodes, or {AUTO}") from error


def _print_budgets(found: Sequence[Budget], stream: TextIO) -> None:
    """Some of the budgets, the best one marked; a warning where plain decoding is expected to be faster."""
    best, plain = best_budget(found), plain_budget(found)
    sizes = {*_TABLE_SIZES, best.nodes, found[-1].nodes}
    names = ("drafted\nnodes", "expected\ntokens/step", "ms/step", "expected\ntokens/s", "")
    table = Table(*names, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for budget in found:
        if budget.nodes in sizes:
            table.add_row(
                str(budget.nodes - 1), f"{budget.expected_length:.3f}", f"{budget.step_ms:.2f}",
                f"{budget.tokens_per_second:.1f}",
                "best" if budget == best else "plain decoding" if budget == plain else "",
            )  # fmt: skip
    Console(file=stream, width=max(Console().width, 80)).print(table)
    if plain and plain.tokens_per_second >= best.tokens_per_second:
        print(
            f"warning: plain decoding is expected to be faster here: {plain.tokens_per_second:.1f} tokens/s "
            f"against {best.tokens_per_second:.1f} of the best tree", file=sys.stderr,
        )  # fmt: skip
