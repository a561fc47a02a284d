"""Which of gradio's services the page uses, and which host names it answers to.

All other services answer 404, whatever a later gradio adds: this page has no use for a fetcher of other
sites' files, a video converter, or links that save a page's state on the disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import httpx
from starlette.datastructures import Headers

from medusa_core.config import LARGEST_PORT
from ui.serving.page_routes import DRAWN, SHELL, STEPS, STOP, TRACE
from ui.serving.policy import is_loopback
from ui.serving.request_body import RequestRefusedError

JOIN = "/gradio_api/queue/join"
DATA = "/gradio_api/queue/data"
UPLOAD = "/gradio_api/upload"
UNQUEUED = "/gradio_api/run/predict"
MCP = ("/gradio_api/mcp", "/gradio_api/mcp/http", "/gradio_api/mcp/schema")
_POSTED = frozenset({
    JOIN, UNQUEUED, UPLOAD, "/gradio_api/cancel", "/gradio_api/reset",
    STOP, DRAWN,  # the page's own channel besides gradio's
    STEPS, TRACE,  # the page's own run
})  # fmt: skip
_READ = frozenset({
    SHELL,  # the page's own, like the channel
    "/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/pwa_icon", DATA,
    "/gradio_api/info", "/gradio_api/app_id", "/gradio_api/queue/status", "/gradio_api/startup-events",
    "/gradio_api/theme.css", "/gradio_api/upload_progress", "/gradio_api/user", "/gradio_api/login_check",
})  # fmt: skip
_READ_BELOW = re.compile(
    r"/(assets|static|svelte|pwa_icon)/.+"
    r"|/gradio_api/heartbeat/[A-Za-z0-9_-]{1,64}"
    # A file on this server; gradio would also fetch any address on another one.
    r"|/gradio_api/file=(?!\s*[a-z][a-z0-9+.-]*:/).+",
    re.IGNORECASE | re.DOTALL,
)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_ELSEWHERE = (
    "This page is not open under the name {}: use 127.0.0.1 or localhost, "
    "or start it with --host or GRADIO_ROOT_PATH."
)


def check_route(scope: Mapping[str, Any], *, mcp: bool = False) -> str:
    """The path of the service that is asked for. Raises RequestRefusedError for one the page does not use."""
    path, method = _route_path(scope), scope["method"]
    # gradio answers with or without a slash at the end; elsewhere a slash is part of a file's name.
    service = path.rstrip("/") or "/"
    if service in _POSTED:
        allowed: tuple[str, ...] = ("POST", "OPTIONS")
    elif mcp and service in MCP:  # its events come by the services above, so all limits hold
        allowed = ("GET", "POST", "DELETE", "OPTIONS")
    elif service in _READ or _READ_BELOW.fullmatch(path):
        allowed = ("GET", "HEAD", "OPTIONS")
    else:
        raise RequestRefusedError(404, "This page has no such service.")
    if method not in allowed:
        raise RequestRefusedError(405, f"This service takes no {method[:20]}.")
    asked = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if "deep_link" in asked:
        raise RequestRefusedError(404, "This page keeps no links to its state.")
    if any(asked.get("page", ())):
        raise RequestRefusedError(404, "There is no other page here.")
    return service if service in _POSTED | _READ | {*MCP} else path


def _route_path(scope: Mapping[str, Any]) -> str:
    """The path without the prefix under which a proxy serves the page, as starlette's router reads it."""
    path, root = scope["path"], scope.get("root_path", "")
    below = root and (path == root or path.startswith(f"{root}/"))
    return path[len(root) :] or "/" if below else path


@dataclass(frozen=True)
class Names:
    """The host names a page answers to: any where others can reach it, else only this machine's.

    A site that a visitor of a private page has open elsewhere may give its own name this machine's address
    (DNS rebinding), or send requests across sites; both would let it use the page in the visitor's name.
    """

    private: bool
    host: str | None = None  # address that the page listens on

    def check(self, headers: Headers) -> None:
        """Raises RequestRefusedError for a request that names another host, or comes from another site."""
        for header in ("host", "x-forwarded-host", "x-gradio-server"):
            for value in headers.getlist(header):
                _require_host(header, value)
        if not self.private:
            return
        host = headers.get("host", "")
        if not self._is_own(host):
            raise RequestRefusedError(421, _ELSEWHERE.format(host[:100] or "(none)"))
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin.partition("://")[2]):
            raise RequestRefusedError(403, "Another site has sent this request: open the page itself.")

    def _is_own(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower().rstrip(".").strip("[]")
        listens_on = (self.host or "localhost").lower().strip("[]")
        return name == listens_on or name.endswith(".localhost") or is_loopback(name)


def _require_host(header: str, value: str) -> None:
    """Refuse what is not a host name: gradio builds addresses from it and fails with a traceback."""
    for part in value.split(","):
        name = part.strip()
        if header == "x-gradio-server":
            name = name.partition("://")[2].partition("/")[0]
        try:
            found, url = _HOST.fullmatch(name), httpx.URL(f"http://{name}")
            named = found is not None and bool(url.host) and (url.port or 0) <= LARGEST_PORT
        except (httpx.InvalidURL, ValueError):  # not a valid IDNA name
            named = False
        if not named:
            raise RequestRefusedError(400, f"The header {header} names no host.")
