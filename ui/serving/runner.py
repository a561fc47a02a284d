"""Where runs are computed: one at a time, on the engine's thread, or on a GPU that is borrowed for each.

A run goes by its name, since a name is what can be told to another process. Knows nothing of what runs do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from ui.records.updates import StopFlag, told
from ui.serving.deadline import ended
from ui.serving.engine_thread import EngineThread
from ui.serving.zero_gpu import BorrowedGpu, seconds_for

T = TypeVar("T")
Runs = Callable[[str, Sequence[Any]], Generator[Any, None, None]]  # by the name of a run and its arguments


class RunPlace:
    """The engine's thread, the lock of the runs, and the lender of GPUs where there is one."""

    def __init__(self, runs: Runs, most_seconds: float | None, gpu: Callable[..., Any] | None = None) -> None:
        """`most_seconds` end a run; `gpu` is what `ui.serving.zero_gpu.claim` gave."""
        self._runs = runs
        self._most_seconds = most_seconds
        self._thread = EngineThread()
        self._running = threading.Lock()
        self._borrowed = None if gpu is None else BorrowedGpu(gpu, self._work)

    @property
    def busy(self) -> bool:
        """Whether a run is going on."""
        return self._running.locked()

    @property
    def borrows(self) -> bool:
        """Whether runs are made in other processes, so that no model can be loaded here for them."""
        return self._borrowed is not None

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, computed on the engine's thread, between two steps of a run."""
        return self._thread.call(function, *arguments)

    def call_between(self, function: Callable[..., T], *arguments: Any) -> T:
        """The same between two runs, or within the run that calls this."""
        if self._thread.is_current:
            return function(*arguments)
        with self._running:
            return self._thread.call(function, *arguments)

    def run(
        self, name: str, arguments: Sequence[Any], flag: StopFlag, tokens: float, *, loaded: bool
    ) -> Iterator[Any]:
        """What the run yields, its end and its errors as updates. `tokens` are those it makes at most.

        `loaded`: whether the model it needs has been loaded here. Raises MedusaError where no GPU is lent.
        """
        with self._running:
            if self._borrowed is None:
                items = self._thread.iterate(self._work(name, arguments, flag, self._most_seconds))
            else:
                items = self._borrowed.run(name, arguments, flag, seconds_for(tokens, loaded=loaded))
            with closing(items):
                yield from items

    def _work(
        self, name: str, arguments: Sequence[Any], flag: StopFlag, seconds: float | None
    ) -> Generator[Any, None, None]:
        """The run itself, on the thread and in the process that compute it."""
        yield from told(ended(self._runs(name, arguments), flag, seconds))
