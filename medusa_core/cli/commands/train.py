"""``train``: the recipes, each a run folder with config, metrics, checkpoints, a card and the result.

The same command given again resumes a run that was interrupted; Ctrl-C and SIGTERM end it after its
step, with a checkpoint. Several GPUs or processes: ``accelerate launch -m medusa_core train ...``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from medusa_core.cli.flags import add_settings, check_output_folder, read_settings
from medusa_core.cli.progress import going_on_later, show_progress
from medusa_core.training.allocator import keep_freed_memory
from medusa_core.training.recipes import RECIPES, train

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("train", help="train heads or another drafter", description=__doc__)
    recipes = parser.add_subparsers(dest="recipe_name", required=True, metavar="RECIPE")
    for name, (config, _) in RECIPES.items():
        summary = (config.__doc__ or "").partition("\n")[0]
        recipe = recipes.add_parser(name, help=summary, description=summary)
        add_settings(recipe, config)
        recipe.set_defaults(run=f"{__name__}:run")


def run(args: argparse.Namespace) -> None:
    """Train, or resume a run that was interrupted. Raises MedusaError for bad input."""
    config = read_settings(RECIPES[args.recipe_name][0], args)
    follow(train(config), config.out)


def follow(records: Generator[Progress, None, None], out: str) -> None:
    """Show a training in the folder ``out`` until its end, or until Ctrl-C or SIGTERM."""
    check_output_folder(out, "--out")
    keep_freed_memory()
    with going_on_later(out):
        last = show_progress(records)
    print(f"finished: {last.folder}", file=sys.stderr)
