"""A lender of GPUs for the tests, which has none: runs go to a forked process as on a ZeroGPU Space.

Modelled on ``spaces`` 0.51: arguments, items and the stop event cross in the same ways, a process
may be kept for the next run and knows nothing newer than its fork, and errors cross only as a class name.
"""

from __future__ import annotations

import inspect
import multiprocessing
import threading
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

import gradio as gr

FORK = multiprocessing.get_context("fork")


class ForkGpu:
    """Call it as ``spaces.GPU``. ``asked`` are the durations, ``refusal`` is raised in place of a run."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refusal: gr.Error | None = None
        self.forks = 0
        self._idle: list[_Worker] = []
        self._alive: list[_Worker] = []  # including those whose run was interrupted

    def __call__(self, *, duration: Callable[..., int]) -> Callable[[Any], Any]:
        return lambda task: self._wrapped(task, duration)

    def forget(self) -> None:
        """End the processes: the next run gets a new one."""
        for worker in self._alive:
            # A process that stayed would keep open the pipes that it inherited, such as a browser's.
            worker.process.kill()
            worker.process.join()
        self._idle, self._alive = [], []

    def _wrapped(self, task: Any, duration: Callable[..., int]) -> Any:
        assert inspect.isgeneratorfunction(task)

        @wraps(task)
        def lent(*arguments: Any) -> Generator[Any, None, None]:
            self.asked.append(duration(*arguments))
            if self.refusal is not None:
                raise self.refusal
            worker = self._idle.pop() if self._idle else self._fork(task)
            worker.arguments.put(arguments)
            yield from _items(worker)
            self._idle.append(worker)

        return lent

    def _fork(self, task: Any) -> _Worker:
        self.forks += 1
        self._alive.append(_Worker(task))
        return self._alive[-1]


class _Worker:
    def __init__(self, task: Any) -> None:
        self.arguments, self.results = FORK.SimpleQueue(), FORK.SimpleQueue()
        self.stop = FORK.Event()
        self.process = FORK.Process(target=self._serve, args=(task,), daemon=True)
        self.process.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        self.process.join()
        self.results.put(("aborted", None))

    def _serve(self, task: Any) -> None:
        while True:
            arguments = self.arguments.get()
            self.stop.clear()
            thread = threading.Thread(target=self._iterate, args=(task, arguments))
            thread.start()
            thread.join()
            self.results.put(("end", None))

    def _iterate(self, task: Any, arguments: tuple[Any, ...]) -> None:
        items = task(*arguments)
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                self.results.put(("error", type(error).__name__))
                return
            if self.stop.is_set():
                items.close()
                return
            self.results.put(("item", item))


def _items(worker: _Worker) -> Generator[Any, None, None]:
    while True:
        kind, value = worker.results.get()
        if kind == "end":
            return
        if kind == "error":
            worker.results.get()  # its end
            raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
        if kind == "aborted":
            raise gr.Error("GPU task aborted", title="ZeroGPU worker error", print_exception=False)
        try:
            yield value
        except GeneratorExit:
            worker.stop.set()
            while worker.results.get()[0] != "end":
                pass
            raise
