"""``train``: the recipes, each a run folder with config, metrics, checkpoints and the result."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from medusa_core.config import Medusa1Config, PretrainConfig
from medusa_core.flags import add_settings, read_settings


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add one subcommand a recipe."""
    parser = subparsers.add_parser("train", help="train a base model or heads", description=__doc__)
    recipes = parser.add_subparsers(dest="recipe_name", required=True, metavar="RECIPE")
    for name, config, help_text in (
        ("pretrain", PretrainConfig, "a small base model from scratch"),
        ("medusa1", Medusa1Config, "heads on a frozen base"),
    ):
        recipe = recipes.add_parser(name, help=help_text, description=config.__doc__)
        add_settings(recipe, config)
        recipe.set_defaults(run=partial(_run, name, config))


def _run(name: str, config: type, args: argparse.Namespace) -> None:
    """Train, or go on with a run that was broken off."""
    from medusa_core.training.medusa1 import medusa1  # noqa: PLC0415 - training libraries load slowly
    from medusa_core.training.pretrain import pretrain  # noqa: PLC0415

    folder = {"pretrain": pretrain, "medusa1": medusa1}[name](read_settings(config, args))
    print(f"finished: {folder}", file=sys.stderr)
