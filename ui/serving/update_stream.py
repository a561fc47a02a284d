"""A run's updates on their way from where they are computed to its page, at the pace of the page.

A run of the linked view is computed ahead of its page. Its updates meanwhile go out together, as
long as only a few messages are under way that the browser has not drawn: a browser with a long queue of
messages handles a click only after them. Other runs compute an item when it is asked for, so that nothing is
sent while the next one is being timed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar, cast

TOGETHER_SECONDS = 0.03  # of steps in one message: a screen can hardly show changes faster
MOST_UNDRAWN = 3  # messages under way: one is drawn while the next ones travel
SILENT_SECONDS = 2.0  # a page that confirms nothing for this long, as in the background, is sent one more
T = TypeVar("T")


class Acks:
    """Which of a run's messages its page has drawn. Only the browser knows the run's ``key``."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(16)
        self.changed = threading.Condition()
        self._sent = 0
        self._drawn = 0
        self._last = 0.0  # when something was sent or confirmed

    def drawn(self, number: int) -> None:
        """The browser has drawn everything up to this message."""
        with self.changed:
            if self._drawn < number <= self._sent:
                self._drawn = number
                self._last = monotonic()
                self.changed.notify_all()

    def labelled(self, message: str) -> str:
        """The message with a number that the browser is to confirm; one thread at a time calls this."""
        self._sent += 1
        self._last = monotonic()
        return f'{{"kind": "numbered", "run": "{self.key}", "number": {self._sent}, "message": {message}}}'

    def wait_seconds(self) -> float:
        """How long the next message has to wait unless a confirmation comes; 0 if it need not wait."""
        since = monotonic() - self._last
        full = self._sent - self._drawn >= MOST_UNDRAWN
        return max(0.0, (SILENT_SECONDS if full else TOGETHER_SECONDS) - since)


class UpdateStream(Iterator[Any]):
    """Updates of a run that is computed ahead of its page, joined and paced. One thread puts, one takes."""

    def __init__(self, acks: Acks) -> None:
        self._acks = acks
        self._changed = acks.changed
        self._updates: list[Any] = []
        self._ended = False
        self.left = False  # the page has gone, so that the run is to end
        self._error: BaseException | None = None
        self.computed_on: int | None = None  # the thread's ident, where calls of other runs wait for it too

    # ---- where updates are computed

    def put(self, update: Any) -> None:
        with self._changed:
            self._updates.append(update)
            if len(self._updates) == 1:  # else the reader waits for the page or its pace, not for this
                self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Note that nothing more comes; the error is raised where the stream is read."""
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()

    # ---- where they are shown

    def __next__(self) -> Any:
        """All updates that can go out as one, as soon as the page is ready for them."""
        with self._changed:
            while not self._ended and (not self._updates or self._acks.wait_seconds() > 0):
                self._changed.wait(self._acks.wait_seconds() if self._updates else None)
            if not self._updates:
                if self._error is not None:
                    raise self._error
                raise StopIteration
            update = self._joined()
            if update.message is not None:
                update = replace(update, message=self._acks.labelled(update.message))
            return update

    def close(self) -> None:
        """End the run at its next item, and return when it has ended.

        On the thread that computes it this returns at once: Python's collector closes an unreferenced
        generator on whichever thread it happens to run, and this one would wait for itself.
        """
        with self._changed:
            self.left = True
            if threading.get_ident() != self.computed_on:
                self._changed.wait_for(lambda: self._ended)

    def _joined(self) -> Any:
        count = 1
        while count < len(self._updates) and self._updates[count - 1].joins(self._updates[count]):
            count += 1
        *earlier, last = self._updates[:count]
        del self._updates[:count]
        return last.after(earlier)


def feed(items: Generator[Any, None, None], stream: UpdateStream) -> None:
    """Compute a generator's items ahead into a stream, on its own thread."""

    def work() -> None:
        try:
            with closing(items):
                for item in items:
                    stream.put(item)
                    if stream.left:
                        break
        except BaseException as error:  # raised again where the stream is read
            stream.end(error)
        else:
            stream.end()

    # The context tells gradio's helpers, and the lender of a GPU, whose request this is.
    threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()


class EngineThread:
    """Calls and the steps of generators on one thread, in the order they come: all of the engine's computing.

    Gradio runs each pull of a generator on whichever worker is free. OpenMP keeps a pool of threads for every
    thread that computes, and with more pools than processors they go to sleep between two operations: plain
    decoding of the embedded model then ran at half its speed.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._ident = self._executor.submit(threading.get_ident).result()

    @property
    def is_current(self) -> bool:
        return threading.get_ident() == self._ident

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here. Runs between two items of a generator."""
        if self.is_current:  # a run that calls its own thread would wait for itself
            return function(*arguments)
        return self._executor.submit(function, *arguments).result()

    def pulled(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        """The items, each computed when it is asked for; closing this closes them too, on their thread."""
        end = object()
        try:
            while (item := self.call(next, items, end)) is not end:
                yield cast("T", item)
        finally:
            self.call(items.close)

    def feed(self, items: Generator[Any, None, None], stream: UpdateStream) -> None:
        """Compute the items ahead into the stream; returns at once."""
        stream.computed_on = self._ident

        def advance() -> None:
            try:
                if stream.left:
                    items.close()
                    stream.end()
                    return
                stream.put(next(items))
            except StopIteration:
                stream.end()
            except BaseException as error:  # raised again where the stream is read
                stream.end(error)
            else:
                # Submitted again for each item, so that calls that came meanwhile get their turn.
                self._executor.submit(advance)

        self._executor.submit(advance)
