"""The finished runs of the open pages: the newest one of each, and all of them within so many bytes.

Runs are kept packed, since the dictionaries of a long one take many times the room of their text. The page
that was not used for longest loses its run first, and a page that has gone takes its own along.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import OrderedDict, deque
from typing import Any
from weakref import ref

from medusa_core.errors import MedusaError

MOST_BYTES = 2**28
GONE = "The charts are not drawn: the server gave the memory of this run to others. Run it again for them."


class RunSlot:
    """One page's place for its newest run. It lies in the page's state and goes with it."""

    def __init__(self) -> None:
        self.filled = False


class KeptRuns:
    """Traces by the slot of their page. For any thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._runs: OrderedDict[ref[RunSlot], bytes] = OrderedDict()  # the last used at the end
        self._gone: deque[ref[RunSlot]] = deque()  # only noted by the collector, which may come at any point
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What the runs take."""
        with self._lock:
            self._forget_closed_pages()
            return self._bytes

    def keep(self, slot: RunSlot, trace: dict[str, Any]) -> None:
        """Keep a page's run in place of its last one, at the cost of pages that were not used for longest."""
        packed = zlib.compress(json.dumps(trace, ensure_ascii=False).encode("utf-8", "surrogatepass"), 1)
        with self._lock:
            self._forget_closed_pages()
            self._forget(ref(slot))
            slot.filled = True
            self._runs[ref(slot, self._gone.append)] = packed
            self._bytes += len(packed)
            while self._bytes > self._most:
                self._forget(next(iter(self._runs)))

    def drop(self, slot: RunSlot) -> None:
        """Forget a page's run: its next one begins."""
        with self._lock:
            slot.filled = False
            self._forget(ref(slot))

    def trace(self, slot: RunSlot) -> dict[str, Any] | None:
        """The page's run, None where it has none. Raises MedusaError when others needed its memory."""
        with self._lock:
            packed = self._runs.get(ref(slot))
            if packed is not None:
                self._runs.move_to_end(ref(slot))
        if packed is None and slot.filled:
            raise MedusaError(GONE)
        return None if packed is None else json.loads(zlib.decompress(packed))

    def _forget_closed_pages(self) -> None:
        while self._gone:
            self._forget(self._gone.popleft())

    def _forget(self, slot: ref[RunSlot]) -> None:
        self._bytes -= len(self._runs.pop(slot, b""))
