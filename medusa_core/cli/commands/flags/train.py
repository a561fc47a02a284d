"""``train``: the recipes, each a run folder with config, metrics, checkpoints, a card and the result.

A run that was broken off goes on when the same command is given again; SIGTERM ends it after its step, with
a checkpoint. Several GPUs or processes:
``accelerate launch -m medusa_core train ...``.
"""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_settings
from medusa_core.training.recipes import RECIPES


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add one subcommand a recipe."""
    parser = subparsers.add_parser("train", help="train heads or another drafter", description=__doc__)
    recipes = parser.add_subparsers(dest="recipe_name", required=True, metavar="RECIPE")
    for name, config in RECIPES.items():
        summary = (config.__doc__ or "").partition("\n")[0]
        recipe = recipes.add_parser(name, help=summary, description=summary)
        add_settings(recipe, config)
        recipe.set_defaults(run="medusa_core.cli.commands.train:run")
