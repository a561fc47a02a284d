"""What the server keeps for its pages: their newest runs, and on one's own machine what was measured there.

All kept runs share one limit of bytes. A run is kept from its first step on, its steps compressed by windows,
so that its page needs to hold the details of only a few windows and asks for the others. The least recently
used page loses its run first, and the run of a closed page is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.other_work import is_busy
from medusa_core.loading import tuning
from ui.records.figures import Figures, Key, PageFigures, key_of, stored_page
from ui.records.settings import Selection
from ui.records.words import Words

if TYPE_CHECKING:
    from medusa_core.trace.run_record import RunRecord


MOST_BYTES = 2**28
GONE = "The charts are not drawn: the server gave the memory of this run to others. Run it again for them."
GONE_STEPS = Words("The server no longer has the details of this run: run it again for them.")


class RunSlot:
    """One page's place for its newest run. It is in the page's state and dropped with it."""

    def __init__(self) -> None:
        self.record: RunRecord | None = None
        self.key: str | None = None  # the browser may ask for the run's steps by it
        self.lost = False  # the run's memory was needed for others
        self.used = 0  # counts up over all slots

    @property
    def size(self) -> int:
        """About how many bytes the run takes."""
        return 0 if self.record is None else self.record.size


class KeptRuns:
    """Runs by the slot of their page, and by the key that only its browser knows. Thread-safe."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._slots: WeakSet[RunSlot] = WeakSet()
        self._uses = count(1)
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        with self._lock:
            return sum(slot.size for slot in self._slots)

    def keep(self, slot: RunSlot, record: RunRecord, key: str | None = None) -> None:
        """Keep a page's run in place of its last one, if needed dropping the least recently used pages'.

        The page's browser may ask for its steps by ``key``.
        """
        with self._lock:
            slot.record, slot.key, slot.lost = record, key, False
            self._slots.add(slot)
        self.grown(slot)

    def grown(self, slot: RunSlot) -> None:
        """Trim the kept runs to their limit after a page's run has grown."""
        with self._lock:
            slot.used = next(self._uses)
            slots = sorted(self._slots, key=lambda one: one.used)
            excess = sum(one.size for one in slots) - self._most
            for one in slots:
                if excess > 0 and one.record is not None:
                    excess -= one.size
                    one.record, one.lost = None, True

    def drop(self, slot: RunSlot) -> None:
        """Forget a page's run: its next one begins."""
        with self._lock:
            slot.record, slot.key, slot.lost = None, None, False

    def trace(self, slot: RunSlot) -> dict[str, Any] | None:
        """The page's run, None where it has none; an unfinished one has no steps.

        It lacks the model's answers after each node. Raises MedusaError when others needed its memory.
        """
        record = self._used(slot)
        if record is None and slot.lost:
            raise MedusaError(GONE)
        if record is None:
            return None
        return {"steps": []} if record.output is None else record.trace(after=False)

    def window(self, key: str, number: int) -> bytes:
        """A window of the run that a browser names by its key. Raises MedusaError where there is none."""
        try:
            return self._of_browser(key).steps.window(number)
        except IndexError as error:
            raise MedusaError(Words("The run has no such steps: look at another one.")) from error

    def texts(self, key: str) -> Iterator[bytes]:
        """The whole run that a browser names by its key, as JSON in pieces. Raises as `window` does."""
        return self._of_browser(key).texts()

    def _of_browser(self, key: str) -> RunRecord:
        with self._lock:
            slot = next((slot for slot in self._slots if slot.key == key), None)
        record = None if slot is None else self._used(slot)
        if record is None:
            raise MedusaError(GONE_STEPS)
        return record

    def _used(self, slot: RunSlot) -> RunRecord | None:
        with self._lock:
            slot.used = next(self._uses)
            return slot.record


class KeptFigures:
    """Keeps what was measured on one's own machine across reloads of the page and restarts of the app.

    It is the one owner of the files; a page holds its `PageFigures`. On a public page nothing is kept: a
    measurement belongs to the visitor who made it.
    """

    def __init__(self, assets: Path, load_of: Callable[[Selection], LoadConfig], keeps: bool):
        """``load_of`` says what a visitor's model is loaded from."""
        self._load_of, self._keeps = load_of, keeps
        self._stored = stored_page(assets)

    def begin(self) -> PageFigures:
        """What a page shows before its browser has said anything."""
        return self._stored

    def choose(self, page: PageFigures, selection: Selection) -> PageFigures:
        """The figures of the visitor's model, including those of earlier starts."""
        key = key_of(selection)
        chosen = page if page.key == key else replace(page, key=key)
        file = self._file_key(key)
        if file is None or chosen.own is not None:
            return chosen
        kept = tuning.recall(file)
        found = [Figures.from_data(one, key) for one in kept] if isinstance(kept, list) else []
        return reduce(PageFigures.having, reversed([one for one in found if one is not None]), chosen)

    def adopt(self, page: PageFigures, found: Figures | None) -> PageFigures:
        """The page with a new measurement, which is kept unless the page is public.

        A measurement that other programs slowed down is shown only in its own tab.
        """
        if found is None or not found.at or found in page.measured.get(found.key, ()):
            return page  # nothing was measured
        if is_busy(found.record.machine.model_dump()):
            return page
        adopted = page.having(found)
        if (file := self._file_key(found.key)) is not None:
            tuning.keep(file, [one.as_data() for one in adopted.measured[found.key]])
        return adopted

    def forget(self, page: PageFigures) -> PageFigures:
        """The page without the chosen model's measurements, now and in later starts."""
        if (file := self._file_key(page.key)) is not None:
            tuning.forget(file)
        return replace(page, measured={key: one for key, one in page.measured.items() if key != page.key})

    def _file_key(self, key: Key) -> dict[str, Any] | None:
        """The identity of a kept measurement; None where none is kept, as with heads made on the page."""
        engine, model = key
        if engine or not self._keeps or not tuning.may_measure():
            return None
        load = asdict(self._load_of(Selection(model=model)))
        kept = {"figures": ENGINE_VERSION, "load": {name: str(value) for name, value in load.items()}}
        return tuning.machine_key() | kept
