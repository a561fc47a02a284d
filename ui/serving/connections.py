"""End connections that ask for nothing, and bound how many one address may hold.

uvicorn waits for the header of a request for ever, and gradio passes it no limits: they are set on the server
once it runs. The body of a request has its limits in `request_body`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn

HEADER_SECONDS = 15.0  # from the first byte of a connection to the end of a request's header
MOST_CONNECTIONS = 900  # a process may usually have 1,024 files open
CONNECTIONS_OF_AN_ADDRESS = 300  # a class behind one router: two streams a pupil, and the requests of a start
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: 41\r\n\r\nToo many connections are open: try again."
)


def limit_connections(
    server: uvicorn.Server, *, proxied: bool, header_seconds: float = HEADER_SECONDS
) -> None:
    """Limits for all connections that come from now on.

    Behind a proxy all connections have its address, so that only their sum is bounded here.
    """
    most = MOST_CONNECTIONS if proxied else CONNECTIONS_OF_AN_ADDRESS
    # The server asks its configuration for the class anew at each connection.
    server.config.http_protocol_class = limited(server.config.http_protocol_class, most, header_seconds)


def limited(protocol: Any, most_of_an_address: int, header_seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol (of h11 or of httptools), with limits."""

    class LimitedProtocol(protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            others = [other for other in self.connections if other is not self and other.client]
            near = sum(self.client is not None and other.client[0] == self.client[0] for other in others)
            if near >= most_of_an_address or len(others) >= MOST_CONNECTIONS:
                transport.write(_FULL)
                transport.close()
                return
            self._wait_for_a_header()

        def data_received(self, data: bytes) -> None:
            # A byte of the next request ends uvicorn's own patience with an idle connection.
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

    return LimitedProtocol
