"""The forward in C for this machine, kept in the user's cache folder."""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path

import torch

from medusa_core.llama.library import Library, NoLibraryError, library_for_this_machine
from medusa_core.llama.weights import DTYPES
from medusa_core.loading.remembered import cache_folder

_ONE_AT_A_TIME = threading.Lock()
_log = logging.getLogger(__name__)


def native_library() -> Library | NoLibraryError:
    """Why there is none where this machine can have none. It is looked for once a process."""
    with _ONE_AT_A_TIME:
        found = _look_for_library(cache_folder() / "native")
    return Library(found.functions, found.isa) if isinstance(found, Library) else found


def runs_in_c(dtype: torch.dtype, device: str) -> bool:
    """Whether the C runs models of its families in ``dtype`` on a kind of device."""
    return device == "cpu" and dtype in DTYPES and isinstance(native_library(), Library)


@functools.cache
def _look_for_library(folder: Path) -> Library | NoLibraryError:
    """The library or, in a log message too, the reason; either cost a minute where the compiler hangs."""
    try:
        return library_for_this_machine(folder)
    except NoLibraryError as reason:
        _log.info("No forward in C: %s", reason)
        return reason
