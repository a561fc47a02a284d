"""``heads init`` and ``heads check``: fresh heads for any model; whether heads and base belong together."""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_settings
from medusa_core.config import LoadConfig


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser("heads", help="make fresh heads, check heads", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser(
        "init", help="fresh heads for a model, ready for train",
        description="Fresh heads: copies of the model's LM head behind blocks that do nothing yet.",
    )  # fmt: skip
    init.add_argument(
        "--model", default="", help="folder or hub name[@revision] of the base; default: the embedded model"
    )
    init.add_argument("--num-heads", type=int, default=5, metavar="K", help="number of heads (default: 5)")
    init.add_argument("--layers", type=int, default=1, metavar="L", help="blocks of a head (default: 1)")
    init.add_argument(
        "--out", default="runs/heads", metavar="DIR", help="folder to write (default: runs/heads)"
    )
    init.add_argument(
        "--share-lm-head",
        action="store_true",
        help="heads that use the model's LM head: small files, and format v2",
    )
    init.add_argument("--force", action="store_true", help="replace heads that DIR holds")
    init.set_defaults(run="medusa_core.cli.commands.heads:run_init")
    check = actions.add_parser(
        "check", help="whether heads and base belong together",
        description="Compare each head's best guess on a short text with what can be guessed without heads.",
    )  # fmt: skip
    add_settings(check, LoadConfig)
    check.add_argument("--text", default="", help="text to guess; default: what the base itself writes")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run="medusa_core.cli.commands.heads:run_check")
