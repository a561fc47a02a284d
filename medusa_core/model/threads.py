"""How many threads compute while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch


class OwnThreads(Protocol):
    """A library with threads of its own."""

    count: int | None  # threads of the run at work, None: those of torch


@contextmanager
def cpu_threads(
    count: int | None, usual: int, library: OwnThreads | None = None
) -> Iterator[Callable[[], None]]:
    """Within it torch uses ``count`` threads, afterwards ``usual`` ones; with None it is left alone.

    Where a ``library`` computes they are its threads, and torch keeps to one: after each operation that torch
    shares out its threads go on spinning for milliseconds, on a processor that the library waits for.

    Runs may take turns and end in any order, so each puts back the usual number and not the one it met. What
    this gives is called after a pause, in which another run may have ended.
    """

    def again() -> None:
        if library is not None:
            library.count = count or usual
            torch.set_num_threads(1)
        elif count is not None and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    again()
    try:
        yield again
    finally:
        if library is not None:
            library.count = None
        if library is not None or count is not None:
            torch.set_num_threads(usual)
