"""Imports of large libraries without the messages of these and without the garbage collector.

Imports none of them itself, so that a command that needs no library does not wait for one.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def quiet_libraries() -> None:
    """Silence progress bars, warnings and notes of the libraries that a program of ours has imported."""
    quiet_bitsandbytes()
    warnings.filterwarnings("ignore", category=FutureWarning)  # meant for the developers of libraries
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()


def quiet_bitsandbytes() -> None:
    """Let bitsandbytes log errors only: once imported, as peft does, it names kernels it could fetch."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the search for reference cycles, for imports and loads of a few seconds.

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
    """A context for imports that take seconds: no garbage collector, no messages of the libraries."""
    quiet_libraries()  # silences messages during the imports
    with collector_paused():
        yield
    quiet_libraries()  # silences later messages of what was just imported
