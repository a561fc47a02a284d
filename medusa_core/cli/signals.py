"""SIGTERM ends a command as Ctrl-C does, so that what was done is saved, with an exit code of its own."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.05  # seconds until a signal is sent again


class Terminated(KeyboardInterrupt):
    """Raised when SIGTERM comes."""


def stop_by(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def signals_stop() -> Iterator[None]:
    """Raise Terminated when SIGTERM comes, and let neither it nor Ctrl-C get lost.

    Python drops exceptions in finalizers and callbacks, also those of signals: the signal is then sent again.
    Signals reach the main thread only; in another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, hook = signal.signal(signal.SIGTERM, _stop), sys.unraisablehook

    def send_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        number = signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT
        # threading.Thread would wait until it runs, but the signal must come when this hook is over.
        _thread.start_new_thread(_send, (number,))

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, handler)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise stop_by(number)


def _send(number: int) -> None:
    time.sleep(_AGAIN)
    os.kill(os.getpid(), number)
