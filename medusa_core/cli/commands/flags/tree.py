"""``tree show`` and ``tree search``: a tree's nodes, mask and paths; the best tree for a node budget."""

from __future__ import annotations

import argparse

AUTO = "auto"


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
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
    show.set_defaults(run="medusa_core.cli.commands.tree_show:run")
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
    search.set_defaults(run="medusa_core.cli.commands.tree:run")
