"""A run's updates at the pace of its page: joined where they come faster than the page can draw them.

The run is computed ahead of the page, and whatever it has said meanwhile goes out together, while no more
than a few messages are under way that the browser has not drawn: a browser with a long line of messages
hears a click only behind them. Knows updates, but no run, no component and no request.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from time import monotonic

from ui.records.updates import Update

TOGETHER_SECONDS = 0.03  # of steps in one message: a screen shows hardly more changes than that
MOST_UNDRAWN = 3  # messages under way: one is drawn while the next ones travel
SILENT_SECONDS = 2.0  # a page that confirms nothing for so long, as one in the background, is sent one more


class Receipts:
    """Which of a run's messages its page has drawn. ``key`` names the run to the browser alone."""

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
        """The message with a number that the browser is to confirm. Called with `changed` held or alone."""
        self._sent += 1
        self._last = monotonic()
        return f'{{"kind": "numbered", "run": "{self.key}", "number": {self._sent}, "message": {message}}}'

    def wait_seconds(self) -> float:
        """How long the next message has to wait unless a confirmation comes; 0 for not at all."""
        since = monotonic() - self._last
        full = self._sent - self._drawn >= MOST_UNDRAWN
        return max(0.0, (SILENT_SECONDS if full else TOGETHER_SECONDS) - since)


def paced(updates: Generator[Update, None, None], receipts: Receipts) -> Generator[Update, None, None]:
    """The updates, pulled as fast as they come and handed on as fast as the page draws them."""
    waiting = _Waiting(receipts)
    # The context tells gradio's helpers, and the lender of a GPU, whose request this is.
    puller = threading.Thread(target=copy_context().run, args=(waiting.fill, updates), daemon=True)
    puller.start()
    try:
        while (update := waiting.take()) is not None:
            if update.message is not None:
                update = replace(update, message=receipts.labelled(update.message))
            yield update
    finally:
        waiting.close()


class _Waiting:
    """Updates on their way from the thread that pulls them to the one that sends them."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._changed = receipts.changed
        self._updates: list[Update] = []
        self._ended = False
        self._left = False
        self._error: BaseException | None = None

    def fill(self, updates: Generator[Update, None, None]) -> None:
        """Pull all of them; to be run on a thread of its own, which closes them as well."""
        try:
            with closing(updates):
                for update in updates:
                    with self._changed:
                        self._updates.append(update)
                        self._changed.notify_all()
                        if self._left:
                            return
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self) -> Update | None:
        """All that can go out as one, as soon as the page is ready for it; None after the last."""
        with self._changed:
            while not self._ended and (not self._updates or self._receipts.wait_seconds() > 0):
                self._changed.wait(self._receipts.wait_seconds() if self._updates else None)
            if not self._updates:
                if self._error is not None:
                    raise self._error
                return None
            count = 1
            while count < len(self._updates) and self._updates[count - 1].joins(self._updates[count]):
                count += 1
            *earlier, last = self._updates[:count]
            del self._updates[:count]
        return last.after(earlier)

    def close(self) -> None:
        """The page has gone: what pulls ends at the next update."""
        with self._changed:
            self._left = True
