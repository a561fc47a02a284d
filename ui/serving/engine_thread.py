"""One thread that does all of the engine's computing.

Gradio runs each pull of a generator on whichever worker is free. OpenMP keeps a pool of threads for every
thread that computes, and with more pools than processors they go to sleep between two operations: plain
decoding of the embedded model then ran at half its speed. Knows nothing of what it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread:
    """Runs calls and the bodies of generators on one thread, in the order they come."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._ident = self._executor.submit(threading.get_ident).result()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread already."""
        return threading.get_ident() == self._ident

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here."""
        if self.is_current:  # a run that calls its own thread would wait for itself
            return function(*arguments)
        return self._executor.submit(function, *arguments).result()

    def iterate(self, items: Generator[T, None, None]) -> Iterator[T]:
        """The generator's items, each computed on the thread; closing this closes the generator there."""
        end = object()
        try:
            while (item := self.call(next, items, end)) is not end:
                yield item
        finally:
            self.call(items.close)
