"""What a request to the page may be: not too large, for a service that the page uses, one of a few runs.

A layer in front of gradio's routes, which take a request of any size, bring services this page has no use for
(a video converter, a fetcher of other sites' files, links that save a page's state on the disk), and let one
visitor take every place of the queue. Knows gradio's queue, but no tab, no session and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeVar

import gradio as gr
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")
LONG = ("engine", "models")  # concurrency ids of what takes long: runs, and models on their way
WAITING_RUNS = 20  # a visitor who would be the 21st is told so rather than left to wait for an hour
RUNS_OF_A_PAGE = 2  # one going on and one behind it
# A class behind one router is one address. It may take half of the places, so that who comes from elsewhere
# still finds one; a smaller share would send pupils away from a page that has room.
WAITING_RUNS_OF_AN_ADDRESS = WAITING_RUNS // 2
WAITING_EVENTS = 200  # everything in gradio's queue: a page that opens has some six small things done
WAITING_EVENTS_OF_AN_ADDRESS = WAITING_EVENTS // 2
UNQUEUED_OF_AN_ADDRESS = 20  # done at once, each in one of gradio's 40 threads

_JOIN, _UNQUEUED = "/gradio_api/queue/join", "/gradio_api/run/"
_TOO_MUCH = "Too much is asked from your address at once: try again."
_CLOSED = (
    "/gradio_api/api/", "/gradio_api/call/", "/gradio_api/component_server", "/gradio_api/deep_link",
    "/gradio_api/dev/", "/gradio_api/file=http:", "/gradio_api/file=https:", "/gradio_api/openapi.json",
    "/gradio_api/process_recording", "/gradio_api/proxy=", "/gradio_api/stream/", "/gradio_api/vibe",
    "/openapi.json",
)  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """One event that wants to be done, or is: whose it is, and whether it takes long."""

    page: str  # gradio's session hash: one open page
    address: str
    run: bool
    waiting: bool = True


def refusal(asked: Ask, present: Sequence[Ask]) -> str | None:
    """Why this one may not join those who are there; None when it may."""
    runs = [other for other in present if other.run]
    waiting = [other for other in (runs if asked.run else present) if other.waiting]
    neighbours = sum(other.address == asked.address for other in waiting)
    if not asked.run:
        full = neighbours >= WAITING_EVENTS_OF_AN_ADDRESS
        return _TOO_MUCH if full else None
    if sum(other.page == asked.page for other in runs) >= RUNS_OF_A_PAGE:
        return f"You already have {RUNS_OF_A_PAGE} runs: wait for one to end, or stop it."
    if len(waiting) >= WAITING_RUNS:
        return f"{len(waiting)} runs are waiting, and there is room for no more: try again in a minute."
    if neighbours >= WAITING_RUNS_OF_AN_ADDRESS:
        return f"{neighbours} runs from your address are waiting: try again when some of them have ended."
    return None


def address_of(peer: str, forwarded: str = "") -> str:
    """Whose request it is: ``peer``, or where that is a proxy, the last public address it was sent on for.

    Each proxy adds the address it was asked from at the end of X-Forwarded-For; what comes before may be
    anything the visitor likes. A peer with a public address is no proxy of ours.
    """
    chain = [part.strip() for part in forwarded.split(",")] if not _is_public(peer) else []
    return next((address for address in reversed(chain) if _is_public(address)), peer)


class HttpGuard:
    """Starlette middleware around a page; `most_bytes` is the largest body of a request."""

    def __init__(self, app: ASGIApp, page: gr.Blocks, most_bytes: int) -> None:
        self._app = app
        self._page = page
        self._most_bytes = most_bytes
        self._joining: list[Ask] = []  # let in, and not yet in gradio's queue
        self._unqueued: list[str] = []  # addresses, one for each request that is being done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].lower().startswith(_CLOSED):
            await _refuse(404, "This page has no such service.", scope, receive, send)
        elif int(Headers(scope=scope).get("content-length", "0")) > self._most_bytes:
            await self._too_large(scope, receive, send)
        elif scope["path"].rstrip("/") == _JOIN:
            await self._join(scope, receive, send)
        elif scope["path"].startswith(_UNQUEUED):
            await self._at_once(scope, receive, send)
        else:
            await self._bounded(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """For a body that does not say its length beforehand, or lies about it."""
        try:
            await self._app(scope, self._counted(receive), send)
        except _TooLargeError:
            await self._too_large(scope, receive, send)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _read(self._counted(receive))
        except _TooLargeError:
            await self._too_large(scope, receive, send)
            return
        asked = self._asked(scope, body)
        if why := refusal(asked, [*self._in_queue(), *self._joining]):
            await _refuse(429, why, scope, receive, send)
            return
        # Counted from here until it is in the queue: requests that come together must not all get in.
        with _noted(asked, self._joining):
            await self._app(scope, _replayed(body, receive), send)

    async def _at_once(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = _address_in(scope)
        if self._unqueued.count(address) >= UNQUEUED_OF_AN_ADDRESS:
            await _refuse(429, _TOO_MUCH, scope, receive, send)
            return
        with _noted(address, self._unqueued):
            await self._bounded(scope, receive, send)

    def _asked(self, scope: Scope, body: bytes) -> Ask:
        """What gradio will read out of the body; a body it will refuse counts as a small thing."""
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        content = content if isinstance(content, dict) else {}
        try:
            function = self._page.fns.get(int(content["fn_index"]))  # gradio also takes "12" for 12
        except (KeyError, TypeError, ValueError, OverflowError):
            function = None
        takes_long = function is not None and function.concurrency_id in LONG
        return Ask(str(content.get("session_hash")), _address_in(scope), takes_long)

    def _in_queue(self) -> Iterator[Ask]:
        queue = self._page._queue
        for kind in queue.event_queue_per_concurrency_id.values():
            yield from (_ask_of(event, waiting=True) for event in kind.queue)
        for job in queue.active_jobs:
            yield from (_ask_of(event, waiting=False) for event in job or ())

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most_bytes:
                raise _TooLargeError
            return message

        return counted

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        words = f"The request is larger than {self._most_bytes / 1e6:g} MB: shorten the text or the file."
        await _refuse(413, words, scope, receive, send)


class _TooLargeError(Exception):
    """A body has outgrown the limit."""


def _ask_of(event: Any, *, waiting: bool) -> Ask:
    request = event.request
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for", "")
    return Ask(event.session_hash, address_of(peer, forwarded), event.concurrency_id in LONG, waiting)


def _address_in(scope: Scope) -> str:
    peer = (scope.get("client") or ("", 0))[0]
    return address_of(peer, Headers(scope=scope).get("x-forwarded-for", ""))


@contextmanager
def _noted(item: T, notes: list[T]) -> Iterator[None]:
    notes.append(item)
    try:
        yield
    finally:
        notes.remove(item)


async def _read(receive: Receive) -> bytes:
    """The whole body."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what really comes: gradio asks whether the visitor has left."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _refuse(status: int, words: str, scope: Scope, receive: Receive, send: Send) -> None:
    """The page shows the words of "detail" as a notice."""
    await JSONResponse({"detail": words}, status)(scope, receive, send)


def _is_public(address: str) -> bool:
    try:
        return ip_address(address).is_global
    except ValueError:
        return False
