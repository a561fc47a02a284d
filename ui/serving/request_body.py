"""Read the body of a request within limits: of bytes, of time, and of what all bodies together may take.

A client that trickles its body would otherwise hold a connection for ever, and an interrupted upload
would leave a temporary file behind: gradio sees a body only when it is whole.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from typing import Any, NoReturn

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from medusa_core.words import bytes_words

GRACE_SECONDS = 20.0  # until a body has to come at the rate below
BYTES_PER_SECOND = 10_000  # on average; a slower connection could not run the page either
DRAIN_SECONDS, DRAIN_BYTES = 5.0, 50_000_000  # read from a refused body, so that its sender reads the answer
BODIES_AT_ONCE = 20  # bodies of the largest size in memory at once
# What a body may have besides the contents of its strings: a megabyte of "1,1,1" takes 0.3 s to read and to
# check, one long text a hundredth of it.
MOST_PARTS = 20_000  # strings, and bytes outside them
MOST_FILES = 10  # in an upload
MOST_HEADER_BYTES = 2000  # for one file's name and type
_NAMED = re.compile(
    rb'content-disposition:[^\r\n]*;\s*name="[^"\r\n]+";\s*filename="[^"\x00\r\n]+"', re.IGNORECASE
)
RELOAD = "reload the page and try again"


class RequestRefusedError(Exception):
    """A request that gradio is not to see: the status and the sentence of the answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class RequestStream:
    """A request's messages, and whether its body has ended."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = self.ended or not message.get("more_body", False)
        return message


class BodyReader:
    """Reads the bodies of one page; `most_bytes` is the largest one."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = 0  # bytes of all bodies that are on their way

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body. Raises RequestRefusedError when it is too large or too slow, and
        ClientDisconnect when the client has gone before it was complete.
        """
        self.length(headers)
        parts, seen, begun = [], 0, time.monotonic()
        try:
            while True:
                left = begun + GRACE_SECONDS + seen / BYTES_PER_SECOND - time.monotonic()
                message = await _in_time(receive, left)
                part = message.get("body", b"")
                seen += len(part)
                self._held += len(part)
                if seen > self._most_bytes:
                    raise self.too_large()
                if self._held > BODIES_AT_ONCE * self._most_bytes:
                    raise RequestRefusedError(503, "Too much is being sent to this page: try again.")
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._held -= seen

    def length(self, headers: Headers) -> int:
        """The length that a request declares, 0 where it declares none. Raises RequestRefusedError."""
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > self._most_bytes:
            raise self.too_large()
        return int(length)

    def too_large(self) -> RequestRefusedError:
        limit = bytes_words(self._most_bytes)
        return RequestRefusedError(413, f"The request is larger than {limit}: shorten the text or the file.")


async def _in_time(receive: Receive, seconds: float) -> Message:
    try:
        async with asyncio.timeout(max(seconds, 0.0)):  # `wait_for` makes a task of every message
            message = await receive()
    except TimeoutError as error:
        raise RequestRefusedError(408, "The request came too slowly: try again.") from error
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


async def drain(headers: Headers, receive: Receive) -> None:
    """Take in what is left of a refused body and drop it: most clients read no answer before they have sent.

    A client that waits for a "100 Continue" has not begun to send, and is answered at once.
    """
    if "100-continue" in headers.get("expect", "").lower():
        return
    until, seen = time.monotonic() + DRAIN_SECONDS, 0
    while seen < DRAIN_BYTES:
        try:
            message = await _in_time(receive, until - time.monotonic())
        except (RequestRefusedError, ClientDisconnect):
            return
        seen += len(message.get("body", b""))
        if not message.get("more_body", False):
            return


def read_json(body: bytes) -> Any:
    """The values of a body, with finite numbers only. Raises RequestRefusedError.

    gradio reads NaN, Infinity and 1e999, which it cannot put into its answer.
    """
    if _parts(body) > MOST_PARTS:
        raise RequestRefusedError(400, f"The request has too many parts: {RELOAD}.")
    try:
        # As UTF-8: `json` would take other encodings too, in which parts are not counted.
        return json.loads(body.decode(), parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise RequestRefusedError(400, f"The request is nested too deeply: {RELOAD}.") from error
    except ValueError as error:  # also for bytes that are not UTF-8, and numbers with thousands of digits
        raise RequestRefusedError(400, f"The request is not valid JSON: {RELOAD}.") from error


def require_json(body: bytes) -> None:
    """Raises RequestRefusedError for what gradio cannot read, or cannot put into its answer."""
    try:
        json.dumps(read_json(body), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestRefusedError(400, "The request has half a character: reload the page.") from error


def check_upload(headers: Headers, body: bytes) -> None:
    """Raises RequestRefusedError for a body that is not a whole form of a few files, each with a name.

    gradio's own reader fails with a traceback over a form that is cut off or has a field besides its files,
    and leaves its temporary files behind.
    """
    kind, options = parse_options_header(headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        words = "An upload is sent as multipart/form-data: reload the page and try again."
        raise RequestRefusedError(415, words)
    parts = body.split(b"--" + boundary, MOST_FILES + 2)
    files, end = parts[1:-1], parts[-1]
    if len(files) > MOST_FILES:
        raise RequestRefusedError(400, f"The upload has too many files: {MOST_FILES} at most.")
    if parts[0].strip() or not files or end.strip() != b"--":
        raise RequestRefusedError(400, "The upload is not complete: try again.")
    for file in files:
        head, blank, _ = file.partition(b"\r\n\r\n")
        if not blank or len(head) > MOST_HEADER_BYTES or not _NAMED.search(head):
            raise RequestRefusedError(400, "The upload has a part that is not a file with a name.")


def _parts(body: bytes) -> int:
    """How many strings a JSON text has, and bytes outside them; counted no further than is needed."""
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', MOST_PARTS)
    return len(pieces) // 2 + sum(len(piece) for piece in pieces[::2])


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits)


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body again, then the messages that really come: gradio asks whether the visitor has left."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
