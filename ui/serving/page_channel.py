"""The browser's direct line to its runs: Stop, and which messages it has drawn.

Knows flags and acks by keys that cannot be guessed; no session, no component and no engine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from ui.records.updates import StopFlag
from ui.serving.update_stream import Acks

KEY = re.compile(r"[0-9A-Za-z_-]{16,64}")


class PageChannel:
    """The flags that browsers may raise and the runs they confirm messages of."""

    def __init__(self) -> None:
        self._flags: WeakValueDictionary[str, StopFlag] = WeakValueDictionary()
        self._keys: WeakKeyDictionary[StopFlag, str] = WeakKeyDictionary()
        self._runs: WeakValueDictionary[str, Acks] = WeakValueDictionary()
        self._pages: WeakKeyDictionary[StopFlag, str] = WeakKeyDictionary()
        self._noting = threading.Lock()  # pages come and go on several threads

    def belongs(self, flag: StopFlag, page: str) -> None:
        """Note which of gradio's sessions a flag is of, for the time when that page has gone."""
        with self._noting:
            self._pages[flag] = page

    def page_left(self, page: str) -> None:
        """Raise its flags. gradio notices a page that goes, but not just before its run begins to stream."""
        with self._noting:
            flags = list(self._pages.items())
        for flag, owner in flags:
            if owner == page:
                flag.stopped = True

    def listen(self, key: str, flag: StopFlag) -> None:
        """Let the browser that made up this key raise the flag; of several keys of a flag the last counts."""
        if not KEY.fullmatch(key) or self._keys.get(flag) == key:
            return
        if (before := self._keys.get(flag)) is not None:
            self._flags.pop(before, None)
        self._keys[flag] = key
        self._flags[key] = flag

    @contextmanager
    def acks(self) -> Iterator[Acks]:
        """For one run: what its page confirms."""
        acks = Acks()
        self._runs[acks.key] = acks
        try:
            yield acks
        finally:
            del self._runs[acks.key]

    def stop(self, key: str) -> None:
        """Raise the flag of this key, if there is one."""
        if (flag := self._flags.get(key)) is not None:
            flag.stopped = True

    def drawn(self, key: str, number: int) -> None:
        """A run's page has drawn everything up to this message."""
        if (acks := self._runs.get(key)) is not None:
            acks.drawn(number)
