"""Serving a gradio page for a test: in this process, or the app in one of its own."""

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
    """Serve a Blocks on a free port; its address.

    Between finding a port and listening on it another process may take it, and gradio gives a page up when
    its own first request takes too long, as on a busy machine: both are tried again.
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
    """The app in a process of its own, once it says where it listens: (its port, all lines up to then)."""
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
