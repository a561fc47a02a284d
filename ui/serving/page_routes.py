"""The page's requests besides gradio's: Stop, what it has drawn, steps of its run, an empty replay file.

Requests of a few bytes that are answered on the server's event loop: they wait neither in gradio's queue nor
for one of its threads, nor in the browser for what a run has sent. A run is named by the key that its
browser was sent with each of its messages; with another key it is answered as if the run were gone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from medusa_core.errors import MedusaError
from medusa_core.trace.replay.page import replay_shell
from ui.records.updates import StopFlag
from ui.serving.kept import KeptRuns
from ui.serving.update_stream import Acks

STOP, DRAWN = "/medusa/stop", "/medusa/drawn"
STEPS, TRACE, SHELL = "/medusa/steps", "/medusa/trace", "/medusa/replay"
MOST_BYTES = 200  # size limit of a request
KEY = re.compile(r"[0-9A-Za-z_-]{16,64}")


class PageChannel:
    """Flags that browsers may raise, and runs they confirm messages of, by keys that cannot be guessed."""

    def __init__(self) -> None:
        self._keys: WeakKeyDictionary[StopFlag, str] = WeakKeyDictionary()
        self._pages: WeakKeyDictionary[StopFlag, str] = WeakKeyDictionary()
        self._runs: dict[str, Acks] = {}
        self._noting = threading.Lock()  # pages come and go on several threads

    def belongs(self, flag: StopFlag, page: str) -> None:
        """Note the gradio session of a flag, which `page_left` raises when that page has gone."""
        with self._noting:
            self._pages[flag] = page

    def page_left(self, page: str) -> None:
        """Raise its flags. gradio misses a page that goes just before its run begins to stream."""
        self._raise(self._pages, page)

    def listen(self, key: str, flag: StopFlag) -> None:
        """Let the browser that made up this key raise the flag; of a flag's several keys the last counts."""
        if KEY.fullmatch(key):
            with self._noting:
                self._keys[flag] = key

    @contextmanager
    def acks(self) -> Iterator[Acks]:
        """The confirmations of one run's page."""
        acks = Acks()
        self._runs[acks.key] = acks
        try:
            yield acks
        finally:
            del self._runs[acks.key]

    def stop(self, key: str) -> None:
        """Raise the flag of this key, if there is one."""
        self._raise(self._keys, key)

    def drawn(self, key: str, number: int) -> None:
        """A run's page has drawn everything up to this message."""
        if (acks := self._runs.get(key)) is not None:
            acks.drawn(number)

    def _raise(self, names: WeakKeyDictionary[StopFlag, str], name: str) -> None:
        with self._noting:
            flags = [flag for flag, own in names.items() if own == name]
        for flag in flags:
            flag.stopped = True


def page_routes(channel: PageChannel, runs: KeptRuns) -> list[Route]:
    """Routes for gradio's app, placed in front of its own."""

    def steps(key: str, window: int) -> Response:
        # Sent as it is kept: every browser can read it, and nothing is computed here.
        headers = {"content-encoding": "deflate", "cache-control": "no-store"}
        return Response(runs.window(key, window), media_type="application/json", headers=headers)

    def trace(key: str, _: int) -> Response:
        return StreamingResponse(runs.texts(key), media_type="application/json")

    return [
        _post(STOP, lambda key, _: channel.stop(key)),  # a run that has just ended is not an error
        _post(DRAWN, channel.drawn),
        _post(STEPS, steps),
        _post(TRACE, trace),
        Route(SHELL, _shell),
    ]


def _post(path: str, answer: Callable[[str, int], Response | None]) -> Route:
    """Answers {"key", "window" or "number"}; the words of a 410 are for the reader."""

    async def answered(request: Request) -> Response:
        try:
            said = json.loads(await request.body())
            key, number = str(said["key"]), int(said.get("window", said.get("number", 0)))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return Response(status_code=400)
        if not KEY.fullmatch(key):
            return Response(status_code=400)
        try:
            return answer(key, number) or Response(status_code=204)
        except MedusaError as error:
            return JSONResponse({"words": str(error)}, 410)

    return Route(path, answered, methods=["POST"], max_body_size=MOST_BYTES)


async def _shell(request: Request) -> Response:
    """The replay file without a run, for browsers to fill with the run they show: no run is sent here.

    Sent as text: it is to be filled and saved; opened here it would be a page of this origin.
    """
    return Response(_replay_shell(), media_type="text/plain", headers={"cache-control": "no-cache"})


_replay_shell = cache(replay_shell)
