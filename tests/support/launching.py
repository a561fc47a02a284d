"""Serving a gradio page for a test: in this process, or the app in its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradio_variables import without_gradios
from paths import ROOT

TRIES = 5
PATIENCE = 120  # seconds until the app has ended


def launch(demo: Any, **options: Any) -> str:
    """Serve a Blocks on a free port; return its address.

    Another process may take the port before it is listened on, and gradio gives up on a page when its own
    first request takes too long, as on a busy machine: both cases are tried again.
    """
    for _ in range(TRIES - 1):
        try:
            return _launch_once(demo, options)
        except OSError:  # the port was taken
            demo.close(verbose=False)
        except ValueError as error:
            demo.close(verbose=False)
            if "localhost is not accessible" not in str(error):
                raise
    return _launch_once(demo, options)


def _launch_once(demo: Any, options: dict[str, Any]) -> str:
    demo.launch(server_port=free_port(), ssr_mode=False, quiet=True, prevent_thread_lock=True, **options)
    return demo.local_url


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(*flags: str, **environment: str) -> Iterator[tuple[int, str]]:
    """The app in its own process, once it says where it listens: (its port, all lines so far)."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port), *flags], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=without_gradios(**environment),
    )  # fmt: skip
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if "Running on local URL" in line:
                break
        yield port, "".join(lines)
    finally:
        process.terminate()
        process.wait(PATIENCE)
