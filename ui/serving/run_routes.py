"""What a page's browser asks of its own run: the steps of a window, and the whole trace as a file.

Answered beside gradio, as `page_channel` is. A run is named by the key that its browser was sent with each of
its messages; whoever does not know it is told what a browser is told whose run is gone.
"""

from __future__ import annotations

import json

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from medusa_core.errors import MedusaError
from ui.serving.kept_runs import KeptRuns
from ui.serving.page_channel import KEY
from ui.serving.small_posts import SmallPosts

STEPS, TRACE = "/medusa/steps", "/medusa/trace"


class RunRoutes(SmallPosts):
    """The requests for the steps and traces of kept runs."""

    paths = (STEPS, TRACE)

    def __init__(self, app: ASGIApp, runs: KeptRuns) -> None:
        super().__init__(app)
        self._runs = runs

    def answer(self, path: str, body: bytes) -> Response:
        """{"key", "window"} asks for steps, {"key"} for the trace; the words of a 410 are for the reader."""
        try:
            said = json.loads(body)
            key, window = str(said["key"]), int(said.get("window", 0))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return Response(status_code=400)
        if not KEY.fullmatch(key):
            return Response(status_code=400)
        try:
            if path == TRACE:
                return StreamingResponse(self._runs.texts(key), media_type="application/json")
            # As it is kept: every browser reads it, and nothing is computed here.
            headers = {"content-encoding": "deflate", "cache-control": "no-store"}
            return Response(self._runs.window(key, window), media_type="application/json", headers=headers)
        except MedusaError as error:
            return JSONResponse({"words": str(error)}, 410)
