"""A launched page as `app.py` would serve it, with what its browser code knows and what the server prints."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import httpx
from launching import launch

from medusa_core.config import LoadConfig
from ui.launch import launch_options
from ui.runs.session import Session
from ui.serving.admission import Rate, limit_connections
from ui.serving.http_guard import MOST_LARGE_EVENTS, MOST_WHOLE, HttpGuard
from ui.serving.page import NEW_PAGES_OF_AN_ADDRESS
from ui.serving.policy import Exposure, policy_of
from ui.tabs.layout import build_page

PATIENCE = 60  # seconds until a test gives up waiting
DONE = "the token budget is used up"
PUBLIC = policy_of({"SPACE_ID": "me/space"})
PRIVATE = policy_of({})


class Site:
    """A launched page and what its own browser code would know of it."""

    def __init__(self, page, session):
        self.page = page
        self.session = session
        self.url = page.local_url.rstrip("/")
        self.client = httpx.Client(timeout=PATIENCE)

    @property
    def guard(self):
        """The layer in front of gradio's routes, behind gradio's own layers."""
        layer = self.page.app.middleware_stack
        while not isinstance(layer, HttpGuard):
            layer = layer.app
        return layer

    def event(self, name, component=None):
        """Number of the queued event with this function and an input of this kind."""
        return next(
            number
            for number, function in self.page.fns.items()
            if function.name == name
            and function.queue
            and (component is None or any(type(block).__name__ == component for block in function.inputs))
        )

    def event_at_once(self):
        """Number of an event that does not wait in the queue and takes values that can be wrong."""
        return next(
            number
            for number, function in self.page.fns.items()
            if function.fn and not function.queue and any(not block.stateful for block in function.inputs)
        )

    def values(self, number, **changes):
        """What the page sends for this event; ``changes`` by the components' labels."""
        blocks = self.page.fns[number].inputs
        values = [None if type(block).__name__ == "State" else block.value for block in blocks]
        labels = [getattr(block, "label", None) for block in blocks]
        for label, value in changes.items():
            values[labels.index(label)] = value
        return values

    def join(self, page, number, values, **headers):
        """Ask for an event; the page's code would do so after a click."""
        body = json.dumps({"fn_index": number, "session_hash": page, "data": values}).encode()
        headers |= {"content-type": "application/json"}
        url = f"{self.url}/gradio_api/queue/join"
        return self.client.post(url, content=body, headers=headers)

    @contextmanager
    def listen(self, page) -> Iterator[Iterator[dict]]:
        """The messages of one page's events; leaving this closes the page."""
        url = f"{self.url}/gradio_api/queue/data"
        with self.client.stream("GET", url, params={"session_hash": page}) as stream:
            yield (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))

    def outcome(self, page, number, values):
        """All messages of one event, up to its last."""
        assert self.join(page, number, values).status_code == 200
        seen = []
        with self.listen(page) as messages:
            for message in messages:
                seen.append(message)
                if message["msg"] == "process_completed":
                    return seen
        raise AssertionError(f"the event did not end: {seen[-1]}")

    def forget_visitors(self):
        """Reset this server, which test files share, as if nobody had used it."""
        states = self.page.states
        for kept in (states.session_data, states.time_last_used, states._addresses, states._dropped):
            kept.clear()
        states._new = Rate(NEW_PAGES_OF_AN_ADDRESS)
        self.guard._large, self.guard._whole = Rate(MOST_LARGE_EVENTS), Rate(MOST_WHOLE)

    def idle(self):
        """Wait until no event is running or waiting."""
        wait_until(lambda: not len(self.page._queue) and not any(self.page._queue.active_jobs))


@contextmanager
def launched(folder, policy, *, proxied=None) -> Iterator[Site]:
    """A page as `app.py` would serve it; a public one as on a Space, behind a proxy, unless told so."""
    session = Session(LoadConfig(str(folder), dtype="float32", device="cpu"), policy=policy)
    page = build_page(session)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    reach = Exposure("127.0.0.1", share=False, hosted=policy.public if proxied is None else proxied)
    options = launch_options(page, policy, reach)
    launch(
        page, **{name: value for name, value in options.items() if name not in ("server_port", "ssr_mode")}
    )
    limit_connections(page.server, proxied=reach.proxied)
    yield Site(page, session)
    page.close(verbose=False)


@contextmanager
def engine_taken(session):
    """A context in which another visitor's run has the engine."""
    begun, over = threading.Event(), threading.Event()

    def hold(engine):
        begun.set()
        yield over.wait(PATIENCE)

    seen = []
    thread = threading.Thread(target=lambda: seen.extend(session.on_engine(hold)))
    thread.start()
    assert begun.wait(PATIENCE), seen
    try:
        yield
    finally:
        over.set()
        thread.join()


def file_at(path):
    """What the page sends for a file after its upload."""
    return {"path": path, "orig_name": "tree.json", "meta": {"_type": "gradio.FileData"}}


def wait_until(condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def words_of(messages):
    """Every string in what the server said."""
    return json.dumps(messages, ensure_ascii=False)


@contextmanager
def terminal() -> Iterator[io.StringIO]:
    """Collects what the server prints and logs until this is left, from all of its threads."""
    seen = io.StringIO()
    handler = logging.StreamHandler(seen)
    loggers = [logging.getLogger(name) for name in ("", "uvicorn", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with redirect_stderr(seen), redirect_stdout(seen):
            yield seen
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
