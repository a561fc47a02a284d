"""Serving a gradio page in this process for a test."""

from __future__ import annotations

import socket
from typing import Any

TRIES = 5


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
