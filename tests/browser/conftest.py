"""A headless Chromium and a way to serve a Gradio page; both skip where no browser is installed."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all browser tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on the path")
    with playwright.sync_playwright() as manager:
        browser = manager.chromium.launch(executable_path=program, headless=True, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., str]]:
    """Call it with a Blocks: launches it in this process on a free port and returns its address."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    running = []

    def launch(demo: Any, **options: Any) -> str:
        port = free_port()
        demo.launch(server_port=port, ssr_mode=False, quiet=True, prevent_thread_lock=True, **options)
        running.append(demo)
        return f"http://127.0.0.1:{port}/"

    yield launch
    for demo in running:
        demo.close(verbose=False)


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., Any]]:
    """Call it with an address: a page, whose console errors and foreign requests fail the test."""
    pages, complaints = [], []

    def open_at(url: str, width: int = 1440, height: int = 1000, **options: Any) -> Any:
        page = chromium.new_page(viewport={"width": width, "height": height}, **options)
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: foreign(request.url) and complaints.append(request.url))
        page.goto(url)
        pages.append(page)
        return page

    yield open_at
    for page in pages:
        page.close()
    assert complaints == []


def foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:", "ws://127.0.0.1:"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
