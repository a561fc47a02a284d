"""``train``: the recipes, each a run folder with config, metrics, checkpoints, a card and the result.

A run that was broken off goes on when the same command is given again; SIGTERM ends it after its step, with
a checkpoint. Several GPUs or processes:
``accelerate launch -m medusa_core train ...``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, cast

from medusa_core.cli.flags import add_settings, check_output_folder, read_settings
from medusa_core.cli.signals import Terminated
from medusa_core.training.allocator import keep_freed_memory
from medusa_core.training.recipes import RECIPES, train

if TYPE_CHECKING:
    from tqdm import tqdm

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
    """Train, or go on with a run that was broken off. Raises MedusaError for bad input."""
    config = read_settings(RECIPES[args.recipe_name][0], args)
    follow(train(config), config.out)


def follow(records: Generator[Progress, None, None], out: str) -> None:
    """Show a training in the folder ``out`` until its end, or until SIGTERM."""
    check_output_folder(out, "--out")
    keep_freed_memory()
    with ended_by_signal() as asked:
        last = show_progress(records, asked)
    if last.folder is None:
        print(f"stopped at step {last.step}, the same command goes on from there", file=sys.stderr)
        raise Terminated
    print(f"finished: {last.folder}", file=sys.stderr)


@contextmanager
def ended_by_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether SIGTERM came: the run ends after its step, so that none is lost."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGTERM, before)


def show_progress(
    records: Generator[Progress, None, None], asked_to_end: Callable[[], bool] = lambda: False
) -> Progress:
    """Show a bar for each stage; return the last record.

    Closes ``records`` once ``asked_to_end()`` is true, and the run then saves a checkpoint.
    """
    bars = StageBars()
    last: Progress | None = None
    try:
        for record in records:
            bars.update(record)
            last = record
            if record.folder is None and asked_to_end():
                records.close()
                break
    finally:
        bars.close()  # ends its line, so that an error stands on the next
    return cast("Progress", last)  # a run has a last record, finished or not


class StageBars:
    """A bar for each stage on standard error, with throughput, loss and the time left."""

    _bar: tqdm | None = None
    _stage = ""

    def update(self, record: Progress) -> None:
        """Show a record."""
        from tqdm import tqdm

        if self._bar is None or record.stage != self._stage:
            self.close()
            self._stage = record.stage
            self._bar = tqdm(
                total=record.steps,
                initial=max(0, record.step - 1),  # a resumed run does not count what was done before
                desc=record.stage,
                mininterval=1,
                file=sys.stderr,
                dynamic_ncols=True,
                disable=os.environ.get("LOCAL_RANK", "0") != "0",
            )
        self._bar.update(max(0, record.step - self._bar.n))
        words = {"tok/s": f"{record.tokens_per_second:.0f}"} if record.tokens_per_second else {}
        if "loss" in record.metrics:
            words["loss"] = f"{record.metrics['loss']:.3f}"
        if words:
            self._bar.set_postfix(words, refresh=record.step == record.steps)

    def close(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None
