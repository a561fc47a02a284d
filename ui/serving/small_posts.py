"""Requests of a few bytes from the page, answered on the server's event loop before gradio sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

MOST_BYTES = 200  # size limit of a request


class SmallPosts(ABC):
    """Starlette middleware that answers POST requests at ``paths`` and leaves all others to the app."""

    paths: ClassVar[tuple[str, ...]]

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    @abstractmethod
    def answer(self, path: str, body: bytes) -> Response:
        """The answer to a whole body of at most MOST_BYTES."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self.paths:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST":
            await Response(status_code=405)(scope, receive, send)
        else:
            body = await _body_of(receive)
            answer = Response(status_code=413) if body is None else self.answer(scope["path"], body)
            await answer(scope, receive, send)


async def _body_of(receive: Receive) -> bytes | None:
    """The whole body, None for one that is too long."""
    parts = b""
    while True:
        message = await receive()
        parts += message.get("body", b"")
        if len(parts) > MOST_BYTES:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return parts
