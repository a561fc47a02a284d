"""``train``: the recipes, each a run folder with config, metrics, checkpoints, a card and the result.

A run that was broken off goes on when the same command is given again. Several GPUs or processes:
``accelerate launch -m medusa_core train ...``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tqdm import tqdm

from medusa_core.flags import add_settings, check_output_folder, read_settings
from medusa_core.training.recipes import RECIPES, train

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add one subcommand a recipe."""
    parser = subparsers.add_parser("train", help="train a base model or heads", description=__doc__)
    recipes = parser.add_subparsers(dest="recipe_name", required=True, metavar="RECIPE")
    for name, config in RECIPES.items():
        summary = config.__doc__.splitlines()[0]
        recipe = recipes.add_parser(name, help=summary, description=summary)
        add_settings(recipe, config)
        recipe.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Train, or go on with a run that was broken off. Raises MedusaError for bad input."""
    config = read_settings(RECIPES[args.recipe_name], args)
    check_output_folder(config.out, "--out")
    last = show_progress(train(config))
    print(f"finished: {last.folder}", file=sys.stderr)


def show_progress(records: Iterator[Progress]) -> Progress:
    """A bar a stage, with throughput, loss and the time left; returns the last record."""
    bar, last = None, None
    for record in records:
        if last is None or record.stage != last.stage:
            if bar is not None:
                bar.close()
            bar = _bar(record)
        bar.update(record.step - bar.n)
        words = {"tok/s": f"{record.tokens_per_second:.0f}"} if record.tokens_per_second else {}
        if "loss" in record.metrics:
            words["loss"] = f"{record.metrics['loss']:.3f}"
        bar.set_postfix(words, refresh=record.step == record.steps)
        last = record
    bar.close()
    return last


def _bar(record: Progress) -> tqdm:
    return tqdm(
        total=record.steps,
        initial=max(0, record.step - 1),  # a resumed run does not count what was done before
        desc=record.stage,
        mininterval=1,
        file=sys.stderr,
        dynamic_ncols=True,
        disable=os.environ.get("LOCAL_RANK", "0") != "0",
    )
