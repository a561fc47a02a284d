"""Whose turn it is: the engine does one run at a time, and a long one may give way to those that wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from time import perf_counter

from ui.records.words import Words, amount

SLICE_SECONDS = 1.0  # the shortest slice; with a steady stream of runs, a slice follows each of them


class Place:
    """One run's place in line."""

    def __init__(self, line: deque[Place], changed: threading.Condition, *, gives_way: bool) -> None:
        self.gives_way = gives_way
        self._line = line
        self._changed = changed

    def wait(self, seconds: float | None = None) -> bool:
        """Whether the turn has come, after waiting at most ``seconds``; None waits until it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._line[0] is self, seconds)

    def move_back(self) -> int:
        """Go to the end of the line, letting those who wait go first; return how many there are."""
        with self._changed:
            if ahead := len(self._line) - 1:
                self._line.remove(self)
                self._line.append(self)
                self._changed.notify_all()
            return ahead


class Turns:
    """The line of all runs; the first in it has the engine."""

    def __init__(self) -> None:
        self._line: deque[Place] = deque()
        self._changed = threading.Condition()

    @property
    def taken(self) -> bool:
        """Whether anyone has the engine."""
        return bool(self._line)

    @property
    def shared(self) -> bool:
        """Whether a run that gives way to others is in the line."""
        with self._changed:
            return any(place.gives_way for place in self._line)

    @contextmanager
    def place(self, *, gives_way: bool = False) -> Iterator[Place]:
        """A place at the end of the line, until this is left."""
        place = Place(self._line, self._changed, gives_way=gives_way)
        with self._changed:
            self._line.append(place)
        try:
            yield place
        finally:
            with self._changed:
                self._line.remove(place)
                self._changed.notify_all()


class TimeShare:
    """How much of its time a run that gives way has had the engine.

    The runner writes it while the run is paused, and the run reads it while it computes.
    """

    def __init__(self) -> None:
        self.runs = 0  # others that had the rest of the time
        self._begun = self._came = 0.0  # the first slice, and the latest one
        self._given = 0.0
        self._left: float | None = None  # when it gave way, while it waits for its next slice

    def begin(self) -> None:
        """The run has its first turn."""
        self._begun = self._came = perf_counter()

    def leave(self, runs: int) -> None:
        """The run gives way to this many others."""
        self._left = perf_counter()
        self.runs += runs

    def come_back(self) -> None:
        """The run has its turn again."""
        if self._left is not None:
            self._came = perf_counter()
            self._given += self._came - self._left
            self._left = None

    def clock(self) -> float:
        """Seconds as `perf_counter` counts them, without those in which others had the engine."""
        return (perf_counter() if self._left is None else self._left) - self._given

    @property
    def slice_is_over(self) -> bool:
        """Whether the run has had the engine long enough to give way."""
        return perf_counter() - self._came >= SLICE_SECONDS

    @property
    def words(self) -> str:
        """How much of its time the run got; empty while it has shared none."""
        if not self.runs:
            return ""
        own, whole = int(self.clock() - self._begun), ceil(perf_counter() - self._begun)
        others = amount(self.runs, "other run")
        return Words("used the engine for {0} s of {1} s; the rest went to {2}", own, whole, others)
