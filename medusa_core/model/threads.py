"""How many threads torch computes with while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def cpu_threads(count: int | None, usual: int) -> Iterator[Callable[[], None]]:
    """Within it torch uses ``count`` threads, afterwards ``usual`` ones; with None it is left alone.

    Runs may take turns and end in any order, so each puts back the usual number and not the one it met. What
    this gives is called after a pause, in which another run may have ended.
    """

    def again() -> None:
        if count is not None and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    again()
    try:
        yield again
    finally:
        if count is not None:
            torch.set_num_threads(usual)
