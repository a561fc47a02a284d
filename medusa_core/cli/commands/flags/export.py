"""``export``: what other programs load: a custom_generate folder for transformers."""

from __future__ import annotations

import argparse
from pathlib import Path


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's actions."""
    parser = subparsers.add_parser("export", help="write a folder for another program", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    folder = actions.add_parser(
        "custom-generate",
        help="Medusa for model.generate(..., custom_generate=FOLDER)",
        description="Write the decode loop as a custom_generate folder, for this disk or the hub. Heads that "
        "come with an adapter of their base want it in the model: call model.load_adapter(HEADS) first.",
    )
    folder.add_argument("folder", type=Path, help="where to; it must be new or empty")
    folder.set_defaults(run="medusa_core.cli.commands.export:run")
