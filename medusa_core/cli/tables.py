"""Tables, headlines and bars of measurements on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from medusa_core.cli.flags import COLUMNS
from medusa_core.errors import counted

if TYPE_CHECKING:
    from medusa_core.evaluation.turns import Turn

NONE = "–"


class _Console(Console):
    """A console that leaves a pipe without a reader to the command, where rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def new_table(*names: str, padding: Any = (0, 1, 0, 0), **options: Any) -> Table:
    """A table whose only line is the one below its head."""
    return Table(*names, box=SIMPLE_HEAD, padding=padding, **options)


def console(width: int = COLUMNS, file: TextIO | None = None) -> Console:
    """A console of so many columns, even where it is not a terminal; names and reasons are plain text."""
    return _Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def wide_console(file: TextIO | None = None) -> Console:
    """A console as wide as the terminal, and at least ``COLUMNS``."""
    return console(max(Console().width, COLUMNS), file)


def headlines(record: Mapping[str, Any], *more: str) -> list[str]:
    """The lines above a measurement's tables: which model ran where, and ``more``."""
    machine, model = record["machine"], record["model"]
    where = f"{machine['processor']}, {counted(machine['threads'], 'thread')}"
    first = [f"{model['name']} · {model['dtype']} on {model['device']}", where, *more]
    return [" · ".join(first), model["forward"]]


@contextmanager
def run_bar() -> Iterator[Callable[[Turn], None]]:
    """A bar over the runs of a measurement; yields a function that counts one."""
    # The delay is so that an error stands alone.
    with tqdm(unit="run", file=sys.stderr, delay=1, leave=False, desc="warming up") as bar:

        def progress(turn: Turn) -> None:
            bar.set_description_str(turn.name, refresh=False)
            bar.total = turn.total  # a method that cannot run here has no runs
            bar.update()

        yield progress
