"""Python's garbage collector, kept out of work that makes many objects and no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from medusa_core.library_messages import quiet_libraries


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within it nothing is looked through for reference cycles; for imports and loads of a few seconds.

    torch and transformers leave a million objects that stay. The collector would go through all of them
    each time their number has grown by a quarter, which is a fifth of the time that importing them takes.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """For imports that take seconds: without the collector, and with the libraries' messages kept away."""
    quiet_libraries()  # silences messages during the imports
    with collector_paused():
        yield
    quiet_libraries()  # silences later messages of what was just imported
