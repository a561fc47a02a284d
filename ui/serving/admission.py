"""How many connections one address may hold, and how many events of gradio's queue it and its pages may have.

Knows gradio's queue and uvicorn's connections, but no tab, no session and no engine.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar

import gradio as gr
import uvicorn
from starlette.datastructures import Headers

T = TypeVar("T")
# Concurrency ids of the events that take long: runs, trainings (which give way to runs), and model loads.
LONG = ("engine", "training", "models")
WAITING_RUNS = 20  # a visitor who would be the 21st is refused rather than left to wait for an hour
RUNS_OF_A_PAGE = 2  # one going on and one behind it
# A class behind one router is one address. It may take half of the places, so that visitors from elsewhere
# still find one; a smaller share would send pupils away from a page that has room.
WAITING_RUNS_OF_AN_ADDRESS = WAITING_RUNS // 2
WAITING_EVENTS = 200  # everything in gradio's queue; opening a page takes about six small events
WAITING_EVENTS_OF_AN_ADDRESS = WAITING_EVENTS // 2
UNQUEUED_OF_AN_ADDRESS = 20  # answered at the same time, each in one of gradio's 40 threads
TOO_MUCH = "Too many requests came from your address at once: try again."
FORWARDED = "x-forwarded-for"
# Messages that gradio keeps until their page fetches them; the longest run makes ten, of 1.7 MB together.
MOST_UNREAD_OF_A_PAGE = 200
MOST_UNREAD = 1000
MINUTE = 60.0  # seconds
UNREAD = "This page has not fetched what was sent to it: reload it."
HEADER_SECONDS = 15.0  # from the first byte of a connection to the end of a request's header
MOST_CONNECTIONS = 900  # a process may usually have 1,024 files open
CONNECTIONS_OF_AN_ADDRESS = 300  # a class behind one router: two streams a pupil, and the requests of a start
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: 41\r\n\r\nToo many connections are open: try again."
)


@dataclass(frozen=True)
class QueuedRequest:
    """One event that waits or is being done: whose it is, and whether it takes long."""

    page: str  # gradio's session hash: one open page
    address: str
    run: bool
    waiting: bool = True


class Rate:
    """How often each address may do something within a minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, deque[float]] = OrderedDict()  # the latest address last

    def take(self, address: str) -> bool:
        """Whether the address may do so now; if so, this is counted."""
        now = time.monotonic()
        while self._times and next(iter(self._times.values()))[-1] <= now - MINUTE:
            self._times.popitem(last=False)
        times = self._times.setdefault(address, deque(maxlen=self._most))
        if len(times) == self._most and times[0] > now - MINUTE:
            return False
        times.append(now)
        self._times.move_to_end(address)
        return True


def refusal(asked: QueuedRequest, present: Sequence[QueuedRequest]) -> str | None:
    """Why this event may not join those present; None when it may."""
    runs = [other for other in present if other.run]
    waiting = [other for other in (runs if asked.run else present) if other.waiting]
    neighbours = sum(other.address == asked.address for other in waiting)
    if not asked.run:
        full = neighbours >= WAITING_EVENTS_OF_AN_ADDRESS
        return TOO_MUCH if full else None
    if sum(other.page == asked.page for other in runs) >= RUNS_OF_A_PAGE:
        return f"You already have {RUNS_OF_A_PAGE} runs: wait for one to end, or stop it."
    if len(waiting) >= WAITING_RUNS:
        return f"{len(waiting)} runs are waiting, and there is room for no more: try again in a minute."
    if neighbours >= WAITING_RUNS_OF_AN_ADDRESS:
        return f"{neighbours} runs from your address are waiting: try again when some of them have ended."
    return None


def in_queue(page: gr.Blocks, *, proxied: bool) -> Iterator[QueuedRequest]:
    """All events of the page that wait or are being done."""
    queue = page._queue
    for kind in queue.event_queue_per_concurrency_id.values():
        yield from (_ask_of(event, proxied, waiting=True) for event in kind.queue)
    for job in queue.active_jobs:
        yield from (_ask_of(event, proxied, waiting=False) for event in job or ())


def unread_by(page: gr.Blocks, session: str) -> int:
    """The number of messages that an open page has not fetched."""
    messages = page._queue.pending_messages_per_session.get(session)
    return 0 if messages is None else messages.qsize()


def drop_unread(page: gr.Blocks, present: Collection[str]) -> None:
    """Drop messages that pages never fetch, the oldest first, when there are too many in all.

    ``present`` are the pages whose events wait or are being done: gradio still has messages for those.
    """
    pending = page._queue.pending_messages_per_session
    unread = sum(messages.qsize() for messages in pending.values())
    for session in [name for name in pending if name not in present]:
        if unread <= MOST_UNREAD:
            return
        unread -= pending.pop(session).qsize()


def takes_long(function: Any) -> bool:
    """Whether this event of the page is a run, or loads a model."""
    return function.concurrency_id in LONG


def address_of(peer: str, forwarded: str = "") -> str:
    """Who sent a request: ``peer``, or behind a proxy the last public address in ``forwarded``.

    Each proxy appends the address that its request came from to X-Forwarded-For; what comes before may be
    anything the visitor likes. A peer with a public address is not our proxy.
    """
    chain = [part.strip() for part in forwarded.split(",")] if not _is_public(peer) else []
    return _network_of(next((address for address in reversed(chain) if _is_public(address)), peer))


def asker(client: Any, headers: Headers, *, proxied: bool) -> str:
    """The address a request came from. Headers are believed only where the owner has set up a proxy.

    ``client`` is (host, port) of the connection, None for a connection without addresses.
    """
    peer = client[0] if client else ""
    # A proxy may add a second header of the same name after the one that the visitor sent.
    return address_of(peer, ",".join(headers.getlist(FORWARDED)) if proxied else "")


@contextmanager
def noted(item: T, notes: list[T]) -> Iterator[None]:
    """A context in which the list holds the item."""
    notes.append(item)
    try:
        yield
    finally:
        notes.remove(item)


def _ask_of(event: Any, proxied: bool, *, waiting: bool) -> QueuedRequest:
    address = asker(event.request.client, event.request.headers, proxied=proxied)
    return QueuedRequest(event.session_hash, address, takes_long(event), waiting)


def _network_of(address: str) -> str:
    """An IPv6 address without its second half, which a visitor's machine may change at will."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((known, 64), strict=False)) if known.version == 6 else address


def _is_public(address: str) -> bool:
    try:
        return ip_address(address).is_global
    except ValueError:
        return False


def limit_connections(
    server: uvicorn.Server, *, proxied: bool, header_seconds: float = HEADER_SECONDS
) -> None:
    """Limit all connections from now on, and close those that ask for nothing.

    uvicorn waits for ever for the header of a request, and gradio passes it no limits, so they are set on
    the running server. The body of a request has its limits in `request_body`.

    Behind a proxy all connections have its address, so only their total is limited here.
    """
    most = MOST_CONNECTIONS if proxied else CONNECTIONS_OF_AN_ADDRESS
    protocol: Any = server.config.http_protocol_class  # h11's or httptools'

    class LimitedProtocol(protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            others = [other for other in self.connections if other is not self and other.client]
            near = sum(self.client is not None and other.client[0] == self.client[0] for other in others)
            if near >= most or len(others) >= MOST_CONNECTIONS:
                transport.write(_FULL)
                transport.close()
                return
            self._wait_for_a_header()

        def data_received(self, data: bytes) -> None:
            # The first byte of the next request ends uvicorn's own timeout of an idle connection.
            if self._deadline is None and self._is_idle():
                self._wait_for_a_header()
            super().data_received(data)
            if not self._is_idle():
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _is_idle(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

        def _wait_for_a_header(self) -> None:
            self._stop_waiting()
            self._deadline = self.loop.call_later(header_seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    # The server asks its configuration for the class at each connection.
    server.config.http_protocol_class = LimitedProtocol
