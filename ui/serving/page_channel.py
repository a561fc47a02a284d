"""The browser's direct line to its runs: Stop, and which messages it has drawn.

Requests of a few bytes that are answered on the server's event loop before gradio sees them: they wait
neither in its queue nor for one of its threads, and in the browser for nothing that a run has sent. Knows
flags and receipts by keys that cannot be guessed; no session, no component and no engine.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from starlette.responses import Response
from starlette.types import ASGIApp

from ui.records.updates import StopFlag
from ui.serving.small_posts import SmallPosts
from ui.serving.update_stream import Receipts

STOP, DRAWN = "/medusa/stop", "/medusa/drawn"
KEY = re.compile(r"[0-9A-Za-z_-]{16,64}")


class PageChannel:
    """The flags that browsers may raise and the runs they confirm messages of."""

    def __init__(self) -> None:
        self._flags: WeakValueDictionary[str, StopFlag] = WeakValueDictionary()
        self._keys: WeakKeyDictionary[StopFlag, str] = WeakKeyDictionary()
        self._runs: WeakValueDictionary[str, Receipts] = WeakValueDictionary()
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
    def receipts(self) -> Iterator[Receipts]:
        """For one run: what its page confirms."""
        receipts = Receipts()
        self._runs[receipts.key] = receipts
        try:
            yield receipts
        finally:
            del self._runs[receipts.key]

    def hear(self, path: str, body: bytes) -> int:
        """Do what a request asks for; returns the status of its answer."""
        try:
            said = json.loads(body)
            key, number = str(said["key"]), int(said.get("number", 0))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return 400
        if path == STOP and (flag := self._flags.get(key)) is not None:
            flag.stopped = True
        elif path == DRAWN and (receipts := self._runs.get(key)) is not None:
            receipts.drawn(number)
        return 204  # also for a run that has just ended


class PageChannelRoutes(SmallPosts):
    """The channel's requests."""

    paths = (STOP, DRAWN)

    def __init__(self, app: ASGIApp, channel: PageChannel) -> None:
        super().__init__(app)
        self._channel = channel

    def answer(self, path: str, body: bytes) -> Response:
        """The status that the channel gives."""
        return Response(status_code=self._channel.hear(path, body))
