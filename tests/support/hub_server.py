"""A hub on this machine: it serves folders as repositories to huggingface_hub's requests.

Real HTTP, so downloads are real ones; a file can be made to come slowly or to end early.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

COMMIT = "c" * 40
PIECE = 4 * 1024


@dataclass
class Hub:
    """What the hub serves and how, and the files it was asked for."""

    repositories: dict[str, Path] = field(default_factory=dict)
    delay: float = 0.0  # seconds after each piece of a file
    broken: str = ""  # name of a file that ends half-way
    sent: list[str] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def serving(hub: Hub, cache: Path) -> Iterator[Hub]:
    """Serve ``hub`` on a free port as the library's hub; ``cache`` keeps what it sends.

    It checks often whether it should end, which otherwise takes half a second.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        try:
            yield hub
        finally:
            server.shutdown()
            server.server_close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # otherwise each answer waits 40 ms between head and body

        def log_message(self, *_):
            """Keep the terminal clean."""

        def do_GET(self):
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._describe("/".join(parts[2:4]), parts[4])
            else:
                self._file("/".join(parts[:2]), "/".join(parts[4:]), whole=True)

        def do_HEAD(self):
            parts = self.path.split("?")[0].strip("/").split("/")
            self._file("/".join(parts[:2]), "/".join(parts[4:]), whole=False)

        def _describe(self, name, what):
            folder = hub.repositories.get(name)
            if folder is None:
                self._missing("RepoNotFound")
                return
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            names = [str(file.relative_to(folder)) for file in files]
            tree = [
                {"type": "file", "path": path, "size": file.stat().st_size, "oid": _tag(file)}
                for path, file in zip(names, files, strict=True)
            ]
            model = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in names]}
            body = json.dumps(tree if what == "tree" else model).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _missing(self, code):
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _file(self, name, path, whole):
            if name not in hub.repositories:
                self._missing("EntryNotFound")  # the library asks the hub for other things as well
                return
            file = hub.repositories[name] / path
            if hub.broken == path and whole and path in hub.sent:
                self.close_connection = True
                return
            content = file.read_bytes()
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{_tag(file)}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not whole:
                return
            hub.sent.append(path)
            try:
                for start in range(0, len(content), PIECE):
                    if hub.broken == path and start > len(content) / 2:
                        self.close_connection = True
                        return
                    self.wfile.write(content[start : start + PIECE])
                    time.sleep(hub.delay)
            except OSError:
                self.close_connection = True  # the other side has gone

    return Handler


def _tag(file: Path) -> str:
    return f"{file.name}-{file.stat().st_size}".replace('"', "")
