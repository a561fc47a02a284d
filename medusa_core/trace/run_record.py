"""A run's trace while it is being made and afterwards: its steps compressed by windows, in any of its forms.

A step is some 5 KB of JSON and ten times that as Python's dictionaries, so a run of thousands of steps is
never held as a list of them: readers get one window after another.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

import orjson

from medusa_core.trace.packed import UNPACKED_VERSION, Record, Tables, compact, unpacked

WINDOW = 128  # steps


class StepWindows:
    """Steps in the compact form, compressed by ``WINDOW``; the newest, which fill none yet, as they are.

    One thread adds, any may read.
    """

    def __init__(self) -> None:
        self._full: list[bytes] = []
        self._open: list[bytes] = []  # each step as JSON
        self._changing = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._changing:
            return {name: value for name, value in vars(self).items() if name != "_changing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._changing = threading.Lock()

    def __len__(self) -> int:
        with self._changing:
            return len(self._full) * WINDOW + len(self._open)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        with self._changing:
            return sum(map(len, self._full)) + sum(map(len, self._open))

    def add(self, steps: Sequence[Record]) -> None:
        """Append steps."""
        for step in steps:
            text = orjson.dumps(step)
            full = len(self._open) + 1 == WINDOW
            packed = _compressed([*self._open, text]) if full else b""
            with self._changing:
                if full:
                    self._full.append(packed)
                    self._open = []
                else:
                    self._open.append(text)

    def window(self, number: int) -> bytes:
        """The steps of one window as a compressed list of JSON. Raises IndexError where there is none."""
        with self._changing:
            if number < 0 or number > len(self._full):
                raise IndexError(f"there are {len(self._full) + 1} windows, not number {number}")
            if number < len(self._full):
                return self._full[number]
            steps = list(self._open)
        return _compressed(steps)

    def texts(self) -> Iterator[bytes]:
        """Each window's list of JSON, one after another."""
        for number in range(-(-len(self) // WINDOW)):
            yield zlib.decompress(self.window(number))


class RunRecord:
    """A run's head, tables and steps and, once it is over, its output."""

    def __init__(self, head: Record, tables: Tables) -> None:
        """``head`` is what stands before the steps; ``tables`` grow with them."""
        self._head = head
        self._tables = tables
        self.steps = StepWindows()
        self.output: Record | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self.steps.size + self._tables.size

    def packed(self) -> Record:
        """The whole run in the compact form, its steps as dictionaries."""
        steps = [step for text in self.steps.texts() for step in json.loads(text)]
        return compact(self._head, self._tables.whole(), steps, self.output)

    def trace(self, *, after: bool = True) -> Record:
        """The run as records; its steps are read from their windows whenever they are asked for.

        Without ``after``, what the model predicts after each node is left out, which takes most of the time.
        """
        own = {} if self.output is None else {"output": self.output}
        return {
            "schema_version": UNPACKED_VERSION,
            **self._head,
            "steps": UnpackedSteps(self, after=after),
            **own,
        }

    def texts(self) -> Iterator[bytes]:
        """The compact form as JSON, in pieces of a window each."""
        shell = json.dumps(
            compact(self._head, self._tables.whole(), [], self.output), allow_nan=False, separators=(",", ":")
        )
        # Quotes within texts are escaped, so nothing but the key itself reads like this.
        before, mark, behind = shell.partition('"steps":[]')
        yield (before + mark[:-1]).encode()
        for number, text in enumerate(self.steps.texts()):
            yield (b"," if number else b"") + text[1:-1]
        yield ("]" + behind).encode()

    def unpacked_window(self, number: int, *, after: bool) -> list[Record]:
        """The steps of one window as records. Raises IndexError where there is none."""
        steps = json.loads(zlib.decompress(self.steps.window(number)))
        if not after:
            steps = [{**step, "after": NOTHING_AFTER} for step in steps]
        found = unpacked({**self._tables.whole(), "steps": steps})["steps"]
        return [{**step, "index": number * WINDOW + place} for place, step in enumerate(found)]


NOTHING_AFTER: Record = {"nodes": [], "tokens": [], "heights": [], "log_z": [], "entropy": []}


class UnpackedSteps(Sequence[Record]):
    """The steps of a run as a list of records would hold them, one window in memory at a time."""

    def __init__(self, run: RunRecord, *, after: bool) -> None:
        self._run = run
        self._after = after

    def __len__(self) -> int:
        return len(self._run.steps)

    def __iter__(self) -> Iterator[Record]:
        for number in range(-(-len(self) // WINDOW)):
            yield from self._run.unpacked_window(number, after=self._after)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        at = place + len(self) if place < 0 else place
        if not 0 <= at < len(self):
            raise IndexError(f"the run has {len(self)} steps, not number {place}")
        return self._run.unpacked_window(at // WINDOW, after=self._after)[at % WINDOW]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # steps change as a run grows


def _compressed(steps: Sequence[bytes]) -> bytes:
    return zlib.compress(b"[" + b",".join(steps) + b"]", 1)
