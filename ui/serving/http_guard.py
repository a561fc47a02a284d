"""Which requests the page accepts: limited in size, for services it uses, and for a few runs at once.

A layer in front of gradio's routes, which take a request of any size, fetch what a visitor names, and let one
visitor take every place of the queue. The rules are in `routes`, `request_body`, `event_check` and
`admission`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.serving.admission import (
    MOST_UNREAD_OF_A_PAGE,
    TOO_MUCH,
    UNQUEUED_OF_AN_ADDRESS,
    UNREAD,
    QueuedRequest,
    Rate,
    asker,
    drop_unread,
    in_queue,
    noted,
    refusal,
    takes_long,
    unread_by,
)
from ui.serving.event_check import Event, read_event
from ui.serving.page import Page
from ui.serving.request_body import (
    BodyReader,
    RequestRefusedError,
    RequestStream,
    check_upload,
    drain,
    replayed,
    require_json,
)
from ui.serving.routes import DATA, JOIN, MCP, UNQUEUED, UPLOAD, Names, check_route

# An open page has two streams, and a browser six connections at most; a class sits behind one address.
OPEN_OF_AN_ADDRESS = 300
MOST_EVENT_BYTES = 800_000  # the longest text to train on, 200,000 letters, of four bytes each
MOST_TRACE_EVENT_BYTES = 8_000_000  # an event that carries a trace as a string, with its quotes escaped
MOST_LARGE_EVENTS = 12  # of an address within a minute: each takes a third of a second to read
TOO_MANY_LARGE = "Too many large files come from your address: try again in a minute."
MOST_NOTE_BYTES = 2000  # size limit of a request that is neither an event nor a file
# Answers with the whole page take a tenth of a second to write. A class of 60 opens it, and all reload it.
WHOLE = ("/", "/config")
MOST_WHOLE = 240  # of an address within a minute
RETRY_SECONDS = "30"


class HttpGuard:
    """Starlette middleware around a page.

    `most_upload_bytes` is the largest body of an upload; `proxied` says that requests come through the
    owner's proxy, whose headers name the visitor's address; `mcp` that gradio's MCP server runs along with
    the page.
    """

    def __init__(
        self,
        app: ASGIApp,
        page: Page,
        most_upload_bytes: int,
        names: Names,
        *,
        proxied: bool = False,
        mcp: bool = False,
    ) -> None:
        self._app = app
        self._page = page
        self._names = names
        self._proxied = proxied
        self._mcp = mcp
        events = BodyReader(MOST_EVENT_BYTES)
        self._bodies = dict.fromkeys((JOIN, UNQUEUED, *MCP), events) | {UPLOAD: BodyReader(most_upload_bytes)}
        self._traces = BodyReader(MOST_TRACE_EVENT_BYTES)
        self._notes = BodyReader(MOST_NOTE_BYTES)
        self._large = Rate(MOST_LARGE_EVENTS)
        self._whole = Rate(MOST_WHOLE)
        self._writing = asyncio.Semaphore()
        self._joining: list[QueuedRequest] = []  # let in, and not yet in gradio's queue
        self._unqueued: list[str] = []  # addresses, one for each event that is being done at once
        self._open: list[str] = []  # addresses, one for each request that is being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})  # the page has no socket
        else:
            stream = RequestStream(receive)
            try:
                await self._serve(scope, stream, send)
            except RequestRefusedError as refused:
                await _answer(refused, scope, stream, send)
            except ClientDisconnect:
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._names.check(headers)
        service = check_route(scope, mcp=self._mcp)
        address = asker(scope.get("client"), headers, proxied=self._proxied)
        if self._open.count(address) >= OPEN_OF_AN_ADDRESS:
            raise RequestRefusedError(429, TOO_MUCH)
        with noted(address, self._open):
            if service == DATA:
                await self._messages(scope, receive, send)
            elif service in WHOLE:
                await self._in_turn(address, scope, receive, send)
            elif scope["method"] != "POST":
                await self._app(scope, receive, send)
            else:
                await self._post(service, address, scope, receive, send)

    async def _messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_unknown(scope):
            await _session_is_gone(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except (KeyError, RuntimeError):
            # Another reader has taken the last of these messages: gradio has said so, and raises as well.
            if not self._is_unknown(scope):
                raise
            await send({"type": "http.response.body", "body": b""})

    async def _post(self, service: str, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        large = service == JOIN and self._traces.length(headers) > MOST_EVENT_BYTES
        if large and not self._large.take(address):
            raise RequestRefusedError(429, TOO_MANY_LARGE)
        bodies = self._traces if large else self._bodies.get(service, self._notes)
        body = await bodies.read(headers, receive)
        if service in (JOIN, UNQUEUED):
            queued = service == JOIN
            event = await asyncio.to_thread(read_event, self._page, headers, body, queued=queued)
            if large and not event.brings_file:
                raise self._bodies[JOIN].too_large()
            MutableHeaders(scope=scope)["content-length"] = str(len(event.body))
            serve = self._join if queued else self._at_once
            await serve(event, address, scope, replayed(event.body, receive), send)
            return
        if service == UPLOAD:
            check_upload(headers, body)
        else:
            require_json(body)
        await self._app(scope, replayed(body, receive), send)

    async def _in_turn(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request for the whole page at a time: several threads would hold up the event loop."""
        if not self._whole.take(address):
            raise RequestRefusedError(429, TOO_MUCH)
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._writing)

            async def sent(message: Message) -> None:
                await turn.aclose()  # a visitor may be slow to take it
                await send(message)

            await self._app(scope, receive, sent)

    async def _join(self, event: Event, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        asked = QueuedRequest(event.page, address, takes_long(event.function))
        present = [*in_queue(self._page, proxied=self._proxied), *self._joining]
        if why := refusal(asked, present):
            raise RequestRefusedError(429, why)
        if unread_by(self._page, event.page) > MOST_UNREAD_OF_A_PAGE:
            raise RequestRefusedError(429, UNREAD)
        self._page.states.admit(event.page, address)
        drop_unread(self._page, {event.page, *(other.page for other in present)})
        # Counted from here until it is in the queue: requests that come together must not all get in.
        with noted(asked, self._joining):
            await self._app(scope, receive, send)

    async def _at_once(self, event: Event, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._unqueued.count(address) >= UNQUEUED_OF_AN_ADDRESS:
            raise RequestRefusedError(429, TOO_MUCH)
        self._page.states.admit(event.page, address)
        with noted(address, self._unqueued):
            await self._app(scope, receive, send)

    def _is_unknown(self, scope: Scope) -> bool:
        """Whether a page that waits for messages has asked for nothing, as after a restart of the server."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        session = query.get("session_hash", [""])[-1]
        return session not in self._page._queue.pending_messages_per_session


async def _answer(refused: RequestRefusedError, scope: Scope, stream: RequestStream, send: Send) -> None:
    """Answer a refusal; the page shows "detail" as a notice."""
    if not stream.ended:  # a read would wait for ever after the stream's end
        await drain(Headers(scope=scope), stream)
    # Whatever has not been read of the body must not be taken for the next request.
    headers = {"connection": "close"} | (
        {"retry-after": RETRY_SECONDS} if refused.status in (429, 503) else {}
    )
    answer = JSONResponse({"detail": refused.words}, refused.status, headers)
    await answer(scope, stream, send)


async def _session_is_gone(scope: Scope, receive: Receive, send: Send) -> None:
    """What gradio would answer, without the traceback that it prints."""
    message: Message = {
        "msg": "unexpected_error",
        "message": "This page is not known to the server: reload it.",
        "session_not_found": True,
        "success": False,
    }
    words = f"data: {json.dumps(message)}\n\n"
    await Response(words, media_type="text/event-stream")(scope, receive, send)
