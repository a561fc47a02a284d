"""gradio's Blocks with what this page needs of its server: the channel, and no memory of finished events.

The one place that reaches into gradio's own records of its visitors.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.state_holder import SessionState, StateHolder
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ui.serving.admission import Rate
from ui.serving.kept import KeptRuns
from ui.serving.page_routes import PageChannel, page_routes
from ui.serving.request_body import RequestRefusedError

SKIP = {"__type__": "update"}  # gradio's word for a value that stays as it is
MOST_EVENTS_NOTED = 100  # after each event gradio makes a table of them that is not shown anywhere
# Between an idle queue's looks for new events. gradio's own thousand looks a second take 7 % of a core and
# keep taking the interpreter's lock from the engine's thread.
LOOK_SECONDS = 0.01
# A page is open while its browser holds a heartbeat. A class of 60 sits behind one address; some have two.
OPEN_PAGES_OF_AN_ADDRESS = 120
# Pages without a heartbeat: closed, reloaded, of a program, or of the laptops of a class during a break.
IDLE_PAGES_OF_AN_ADDRESS = 30
NEW_PAGES_OF_AN_ADDRESS = 120  # within a minute: a class of 60 opens the page, and all of them reload it
MOST_DROPPED = 1000  # names of dropped pages that are kept, to answer them
DROPPED = "The server gave this page's memory to others: reload the page, which begins anew."
FULL = "All places of this server are taken by open pages: try again in a minute."
TOO_MANY_OPEN = "{} pages are open from your address, which is the limit: close one and try again."
TOO_MANY_NEW = "{} pages were opened from your address within a minute: try again in a minute."
_HEARTBEAT = re.compile(r".*/gradio_api/heartbeat/([A-Za-z0-9_-]+)")


class PageState(SessionState):
    """gradio's state of one page, which notes a component's configuration once an event has changed it.

    gradio notes all at the start, 30 ms and 0.4 MB a page, for links to a page's state: there are none.
    """

    def __init__(self, blocks: Any) -> None:
        without_components: Any = SimpleNamespace(default_config=blocks.default_config, blocks=())
        super().__init__(without_components)


class PageStates(StateHolder):
    """The states of all pages; used on the server's event loop.

    gradio's own store drops the least recently used page, even one that a visitor has open, and copies
    every component's configuration for each name that a request mentions.
    No page with an open heartbeat is dropped. Of the others, those of the address that needs room go first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._addresses: dict[str, str] = {}  # by page
        self._heartbeats: Counter[str] = Counter()  # by page
        self._dropped: deque[str] = deque(maxlen=MOST_DROPPED)
        self._new = Rate(NEW_PAGES_OF_AN_ADDRESS)

    def admit(self, page: str, address: str) -> None:
        """Note a page's address at its first event, and make room for it. Raises RequestRefusedError."""
        if page in self:
            return
        if page in self._dropped:
            raise RequestRefusedError(410, DROPPED)
        own = [other for other in self.session_data if self._addresses.get(other) == address]
        idle = self._idle(own)
        if len(own) - len(idle) >= OPEN_PAGES_OF_AN_ADDRESS:
            raise RequestRefusedError(429, TOO_MANY_OPEN.format(OPEN_PAGES_OF_AN_ADDRESS))
        full = len(self.session_data) >= self.capacity
        if full and not (idle or self._idle(self.session_data)):
            raise RequestRefusedError(503, FULL)
        if not self._new.take(address):
            raise RequestRefusedError(429, TOO_MANY_NEW.format(NEW_PAGES_OF_AN_ADDRESS))
        if full or len(idle) >= IDLE_PAGES_OF_AN_ADDRESS:
            self._drop((idle or self._idle(self.session_data))[0])
        self._addresses[page] = address
        self[page]  # adds its state

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            state = PageState(self.blocks)
            if session_id in self._dropped:  # its last event ends, and leaves nothing
                return state
            self.session_data[session_id] = state
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Note that a page is used."""
        with self.lock:
            self.session_data.move_to_end(session_id)

    @contextmanager
    def open(self, page: str) -> Iterator[None]:
        """Keep the page as long as this lasts."""
        self._heartbeats[page] += 1
        if page in self.session_data:  # it has come back: otherwise gradio would drop its state in an hour
            self.session_data[page].is_closed = False
        try:
            yield
        finally:
            self._heartbeats[page] -= 1
            if not self._heartbeats[page]:
                del self._heartbeats[page]

    def is_open(self, page: str) -> bool:
        """Whether a browser holds its heartbeat."""
        return page in self._heartbeats

    def _idle(self, pages: Any) -> list[str]:
        return [page for page in pages if page not in self._heartbeats]

    def _drop(self, page: str) -> None:
        del self.session_data[page]
        self.time_last_used.pop(page, None)
        self._addresses.pop(page, None)
        self._dropped.append(page)


class Heartbeats:
    """Starlette middleware that notes which pages are open; ``left`` is called for one that closes.

    gradio's event for this (`unload`) creates a page's state again where there is none.
    """

    def __init__(self, app: ASGIApp, states: PageStates, left: Callable[[str], None]) -> None:
        self._app = app
        self._states = states
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _HEARTBEAT.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        try:
            with self._states.open(found[1]):
                await self._app(scope, receive, send)
        finally:
            if not self._states.is_open(found[1]):
                self._left(found[1])


class Page(gr.Blocks):
    """Blocks whose server also answers what browsers ask of their runs, however it is launched."""

    def __init__(self, channel: PageChannel, runs: KeptRuns, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.states = PageStates()
        self._channel = channel
        self._runs = runs

    def queue(self, *args: Any, **kwargs: Any) -> Page:
        """Set up gradio's queue to keep fewer finished events and to look for new ones less often."""
        super().queue(*args, **kwargs)
        self._queue.ANALYTICS_MAX_EVENTS = MOST_EVENTS_NOTED
        self._queue.sleep_when_free = LOOK_SECONDS
        self._queue.progress_update_sleep_when_free = 1.0  # this page has none of gradio's progress bars
        return self

    def launch(self, *args: Any, app_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """Launch with the page's own routes, behind the middleware that is asked for.

        `_frontend=False`: otherwise gradio asks its own server for the page and gives up after three seconds,
        too soon for a busy or slow machine.
        """
        asked = app_kwargs or {}
        heartbeats = Middleware(Heartbeats, states=self.states, left=self._channel.page_left)
        layers = [*asked.get("middleware", ()), heartbeats]
        routes = page_routes(self._channel, self._runs)
        return super().launch(
            *args,
            _frontend=False,
            app_kwargs={**asked, "middleware": layers, "routes": routes, "lifespan": self._serving},
            **kwargs,
        )

    @asynccontextmanager
    async def _serving(self, app: Any) -> AsyncIterator[None]:
        app.state_holder = self.states  # before the first request
        self.states.set_blocks(self)
        yield

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Hand gradio only the outputs that an event changes.

        gradio makes a new component for each output, even a skipped one, which costs milliseconds per
        message. It stores a changed one, with script and value, under a new number at each value, for as
        long as the visitor's page is open.
        """
        several = isinstance(predictions, (list, tuple)) and len(predictions) == len(block_fn.outputs) > 1
        changed = [place for place, value in enumerate(predictions) if value != SKIP] if several else []
        if not several or len(changed) == len(predictions):
            return await self._postprocess(block_fn, predictions, state)
        values: list[Any] = [None if block.stateful else dict(SKIP) for block in block_fn.outputs]
        if changed:
            fewer = copy(block_fn)
            fewer.outputs = [block_fn.outputs[place] for place in changed]
            given = [predictions[place] for place in changed]
            found = await self._postprocess(fewer, given if len(changed) > 1 else given[0], state)
            for place, value in zip(changed, found, strict=True):
                values[place] = value
        return values

    async def _postprocess(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        try:
            return await super().postprocess_data(block_fn, predictions, state)
        finally:
            if state is not None:
                for number in state.blocks_config.blocks.keys() - self.default_config.blocks.keys():
                    del state.blocks_config.blocks[number]
                    state.config_values.pop(number, None)
