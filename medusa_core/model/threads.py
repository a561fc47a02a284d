"""How many threads compute while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from medusa_core.llama.library import Library

Item = TypeVar("Item")


@contextmanager
def cpu_threads(count: int | None, library: Library | None = None) -> Iterator[None]:
    """Let torch use ``count`` threads, None: as many as before, and restore their number afterwards.

    Where a ``library`` computes they are its threads, and torch keeps to one: after each operation that torch
    shares out its threads go on spinning for milliseconds, on a processor that the library waits for.
    """
    before = torch.get_num_threads()
    taken = library.count if library is not None else None
    if library is not None:
        library.count = count or taken or before
        count = 1
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if library is not None:
            library.count = taken
        if count is not None and count != before:
            torch.set_num_threads(before)


def each_within(
    context: Callable[[], AbstractContextManager[object]], made: Generator[Item, None, None]
) -> Generator[Item, None, None]:
    """The items of a generator, each made within a context that is left before the item is handed on.

    The reader may load models or begin other runs meanwhile, on the usual threads.
    """
    with closing(made):
        while True:
            with context():
                try:
                    item = next(made)
                except StopIteration:
                    return
            yield item
