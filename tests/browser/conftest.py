"""A headless Chromium and pages to drive in it; all skip where no browser is installed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from launching import launch

from medusa_core.config import LoadConfig
from medusa_core.target.model import Target
from ui.components.theme import gradio_theme
from ui.layout import build_page, page_css
from ui.session import Session

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 90_000  # milliseconds: a page draws slowly on a machine that has other things to do


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


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., str]]:
    """Call it with a Blocks: launches it in this process on a free port and returns its address."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    running = []

    def serve_page(demo: Any, **options: Any) -> str:
        running.append(demo)
        return launch(demo, **options)

    yield serve_page
    for demo in running:
        demo.close(verbose=False)


@pytest.fixture(scope="session")
def serve_session(serve) -> Callable[[Session], str]:
    """Call it with a session: serves its page as the app looks."""
    return lambda session: serve(
        build_page(session), theme=gradio_theme(), css=page_css(), footer_links=[], run_history=False
    )


class Pages:
    """Pages of one browser; notes their console errors and what they ask of other hosts."""

    def __init__(self, browser: Any, common: Any) -> None:
        self._browser = browser
        self._common = common
        self._open: list[Any] = []
        self._complaints: list[str] = []

    def open(
        self, url: str, width: int = 1440, height: int = 1000, *, alone: bool = False, **options: Any
    ) -> Any:
        """A page that shares cached files and storage with others, unless ``alone`` or with options."""
        if alone or options:
            page = self._browser.new_page(viewport={"width": width, "height": height}, **options)
        else:
            page = self._common.new_page()
            page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: message.type == "error" and self._complaints.append(message.text))
        page.on("pageerror", lambda error: self._complaints.append(str(error)))
        page.on("request", lambda request: foreign(request.url) and self._complaints.append(request.url))
        page.goto(url)
        self._open.append(page)
        return page

    def close(self) -> None:
        """Fails when a page complained."""
        for page in self._open:
            page.close()
        assert self._complaints == []


@pytest.fixture(scope="session")
def common_context(chromium) -> Iterator[Any]:
    """What pages share that nothing is remembered in: the files of the page are fetched and compiled once."""
    context = chromium.new_context()
    yield context
    context.close()


@pytest.fixture
def open_page(chromium, common_context) -> Iterator[Callable[..., Any]]:
    """Call it with an address: a page for this test."""
    pages = Pages(chromium, common_context)
    yield pages.open
    pages.close()


@pytest.fixture(scope="module")
def open_warm_page(chromium, common_context) -> Iterator[Callable[..., Any]]:
    """Call it with an address: a page for the tests of a module that do not mind each other's traces."""
    pages = Pages(chromium, common_context)
    yield pages.open
    pages.close()


@pytest.fixture
def unhurried(monkeypatch) -> None:
    """Each step takes a while: a tiny model's run would be over before a busy browser has clicked Stop."""
    verify = Target.verify

    def slow(target: Target, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.05)
        return verify(target, *arguments, **options)

    monkeypatch.setattr(Target, "verify", slow)


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory) -> Path:
    """A tiny model that likes to say things that look like code."""
    return hostile.write_model(tmp_path_factory.mktemp("models") / "hostile")


@pytest.fixture(scope="session")
def private_session(hostile_folder, tmp_path_factory) -> Session:
    """Of the one app that most modules drive: everything a user of an own machine has."""
    load = LoadConfig(str(hostile_folder), dtype="float32", device="cpu")
    return Session(load, hostile.write_assets(tmp_path_factory.mktemp("assets"), load))


@pytest.fixture(scope="session")
def private_address(private_session, serve_session) -> str:
    return serve_session(private_session)


@pytest.fixture(scope="session")
def shipped_address(serve_session) -> str:
    """The app as it is shipped: the embedded model, its recordings and its experiments."""
    return serve_session(Session(LoadConfig()))


def foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:", "ws://127.0.0.1:"))
