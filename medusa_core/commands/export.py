"""``export``: what other programs load: a custom_generate folder for transformers."""

from __future__ import annotations

import argparse
from pathlib import Path

from medusa_core.hub_export import export_custom_generate


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
    folder.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the folder. Raises MedusaError when that cannot be done."""
    written = export_custom_generate(args.folder)
    print(f"{len(written)} files in {args.folder}; use it as")
    print(
        f'model.generate(ids, custom_generate="{args.folder}", trust_remote_code=True, medusa_heads="HEADS")'
    )
