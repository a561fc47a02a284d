"""One thread that does all of the engine's computing.

Gradio runs each pull of a generator on whichever worker is free. OpenMP keeps a pool of threads for every
thread that computes, and with more pools than processors they go to sleep between two operations: plain
decoding of the embedded model then ran at half its speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ui.serving.update_stream import UpdateStream

T = TypeVar("T")


class EngineThread:
    """Calls and the steps of generators on one thread, in the order they come."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._ident = self._executor.submit(threading.get_ident).result()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread already."""
        return threading.get_ident() == self._ident

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here. Runs between two items of a generator."""
        if self.is_current:  # a run that calls its own thread would wait for itself
            return function(*arguments)
        return self._executor.submit(function, *arguments).result()

    def feed(self, items: Generator[Any, None, None], stream: UpdateStream) -> None:
        """Compute the items into the stream, which says when the next one is wanted; returns at once."""
        stream.computed_on = self._ident

        def advance() -> None:
            try:
                if stream.left:
                    items.close()
                    stream.end()
                    return
                stream.put(next(items))
            except StopIteration:
                stream.end()
            except BaseException as error:  # raised again where the stream is read
                stream.end(error)
            else:
                # Submitted anew for each item, so that calls which came meanwhile have their turn.
                stream.when_wanted(lambda: self._executor.submit(advance))

        stream.when_wanted(lambda: self._executor.submit(advance))
