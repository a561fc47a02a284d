"""A headless Chromium and pages to drive in it; all skip where no browser is installed."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from launching import launch
from places import drawn
from tour_page import FIRST, mount_tour

from medusa_core.config import LoadConfig
from medusa_core.llama.greedy import GreedySteps
from medusa_core.model.target import Target
from medusa_core.trace.replay.view import web_script
from ui.records.messages import message_trace
from ui.runs.session import Session
from ui.tabs.layout import build_page, gradio_theme, page_css, page_head

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SEEN = "try { localStorage.setItem('medusa-opening', 'seen'); } catch {}"  # no storage: no opening either
PATIENCE = 90_000  # milliseconds: a page draws slowly on a busy machine


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
    """Call it with a session: serves its page, styled as in the app."""
    options = {"theme": gradio_theme(), "css": page_css(), "head": page_head()}
    return lambda session: serve(build_page(session), **options, footer_links=[], run_history=False)


class Pages:
    """Pages of one browser; notes their console errors and their requests to other hosts."""

    def __init__(self, browser: Any, shared: SharedPages) -> None:
        self._browser = browser
        self._shared = shared
        self._open: list[Any] = []
        self._complaints: list[str] = []

    def __call__(
        self,
        url: str,
        width: int = 1440,
        height: int = 1000,
        *,
        alone: bool = False,
        newcomer: bool = False,
        locale: str | None = None,
        color_scheme: str = "light",
        reduced_motion: str = "no-preference",
    ) -> Any:
        """A page at this address; ``alone`` for one whose browser shares nothing with the others.

        ``newcomer`` and ``locale``, used with it: the opening has not been seen, and the browser's language.
        """
        page = self._browser.new_page(locale=locale) if alone else self._shared.take()
        if alone and not newcomer:
            page.add_init_script(SEEN)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.set_default_timeout(PATIENCE)
        self._listen(page)
        page.goto(url)
        self._open.append(page)
        return page

    def reload(self, page: Any) -> None:
        """What the page reports while it is left does not count: its requests are cut short."""
        url = page.url
        self._ignore(page)
        page.goto("about:blank")
        self._listen(page)
        page.goto(url)

    def _listen(self, page: Any) -> None:
        for event, listen in self._listeners.items():
            page.on(event, listen)

    def _ignore(self, page: Any) -> None:
        for event, listen in self._listeners.items():
            page.remove_listener(event, listen)

    @functools.cached_property
    def _listeners(self) -> dict[str, Callable[[Any], None]]:
        complain = self._complaints.append
        return {
            "console": lambda message: complain(message.text) if message.type == "error" else None,
            "pageerror": lambda error: complain(str(error)),
            "request": lambda request: complain(request.url) if foreign(request.url) else None,
        }

    def close(self) -> None:
        """Fails when a page reported an error."""
        for page in self._open:
            if not self._shared.owns(page):
                page.close()
            else:
                self._ignore(page)
                self._shared.give_back(page, forget=True)
        assert self._complaints == []


class SharedPages:
    """Pages that tests reuse.

    Opening the app in a page that has shown it before takes half the time: the renderer's process exists
    and has compiled the app's scripts.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._free: list[Any] = []
        self._taken: list[Any] = []

    def take(self) -> Any:
        page = self._free.pop() if self._free else self._context.new_page()
        page.bring_to_front()  # a browser hardly draws the pages behind the one in front
        self._taken.append(page)
        return page

    def owns(self, page: Any) -> bool:
        return page.context is self._context

    def give_back(self, page: Any, *, forget: bool = False) -> None:
        """``forget`` clears what the app's page has stored; other pages cannot store anything."""
        if not page.is_closed():
            if forget:
                page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.goto("about:blank")  # ends its work, as when a visitor goes elsewhere
            self._free.append(page)
        self._taken = [other for other in self._taken if other is not page and not other.is_closed()]
        if self._taken:
            self._taken[-1].bring_to_front()


@pytest.fixture(scope="session")
def shared_pages(chromium) -> Iterator[SharedPages]:
    context = chromium.new_context()
    context.add_init_script(SEEN)
    yield SharedPages(context)
    context.close()


@pytest.fixture
def open_page(chromium, shared_pages) -> Iterator[Pages]:
    """Call it with an address: a page for this test."""
    pages = Pages(chromium, shared_pages)
    yield pages
    pages.close()


@pytest.fixture(scope="module")
def script_page(chromium) -> Iterator[Any]:
    """A page with the scripts of the linked view and nothing else."""
    page = chromium.new_page()
    page.add_script_tag(content=web_script())
    yield page
    page.close()


@pytest.fixture(scope="module")
def open_warm_page(chromium, shared_pages) -> Iterator[Pages]:
    """Call it with an address: a page for tests of a module that are not disturbed by each other's traces."""
    pages = Pages(chromium, shared_pages)
    yield pages
    pages.close()


@pytest.fixture
def empty_page(chromium, shared_pages) -> Iterator[Any]:
    """A page with nothing in it; its console messages are not checked."""
    page = shared_pages.take()
    page.set_viewport_size({"width": 1440, "height": 1000})
    # An earlier test may have changed it.
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    yield page
    shared_pages.give_back(page)


@pytest.fixture
def view(empty_page) -> Any:
    """A page with one linked view in it and nothing else; `window.view` takes messages."""
    empty_page.set_content("<div id='host'></div>")
    empty_page.add_script_tag(content=web_script())
    empty_page.evaluate("window.view = mountDecodeView(document.getElementById('host'), DECODE_VIEW_STYLE)")
    return empty_page


@pytest.fixture
def tell(view) -> Callable[..., Any]:
    """Call it with messages or whole traces: the page whose view has drawn them."""

    def tell_view(*told: Any) -> Any:
        texts = [one if isinstance(one, str) else message_trace("run", one) for one in told]
        view.evaluate("(texts) => texts.forEach((text) => window.view.receive(text))", texts)
        drawn(view)
        return view

    return tell_view


@pytest.fixture(scope="module")
def tour(shared_pages) -> Iterator[Any]:
    """A page with the tour in it and nothing else, on a recorded run."""
    page = shared_pages.take()
    mount_tour(page, FIRST)
    yield page
    shared_pages.give_back(page)


@pytest.fixture
def unhurried(monkeypatch) -> None:
    """Each step takes a while: a tiny model's run would be over before a busy browser has clicked Stop."""

    def slowed(real: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(0.2)
            return real(*arguments, **options)

        return slow

    for owner, name in ((Target, "verify_all"), (GreedySteps, "run")):  # whichever of them makes the steps
        monkeypatch.setattr(owner, name, slowed(getattr(owner, name)))


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory) -> Path:
    """A tiny model that often says things that look like code."""
    return hostile.write_model(tmp_path_factory.mktemp("models") / "hostile")


@pytest.fixture(scope="session")
def private_session(hostile_folder, tmp_path_factory) -> Session:
    """The session of the app that most modules drive, with all that a user has on their own machine."""
    load = LoadConfig(str(hostile_folder), dtype="float32", device="cpu")
    return Session(load, hostile.write_assets(tmp_path_factory.mktemp("assets"), load))


@pytest.fixture(scope="session")
def private_address(private_session, serve_session) -> str:
    return serve_session(private_session)


@pytest.fixture(scope="module")
def session(private_session) -> Session:
    """A module that drives another app overrides these three."""
    return private_session


@pytest.fixture(scope="module")
def address(private_address) -> str:
    return private_address


@pytest.fixture(scope="module")
def warm_page(address, open_warm_page) -> Any:
    return open_warm_page(address)


@pytest.fixture(scope="session")
def shipped_address(serve_session) -> str:
    """The app as it is shipped: the embedded model, its recordings and its experiments."""
    return serve_session(Session(LoadConfig()))


def foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:", "ws://127.0.0.1:"))
