"""The forward in C for this machine, kept in the user's cache folder."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from medusa_core.loading.remembered import cache_folder
from medusa_core.target.native.library import Library, NoLibraryError, library_for_this_machine

_log = logging.getLogger(__name__)


def native_library() -> Library | None:
    """None where this machine can have none; a log message says why."""
    try:
        return library_for_this_machine(cache_folder())
    except OSError:
        pass  # a folder that cannot be written to: compiled for this process alone
    except NoLibraryError as reason:
        _log.info("No forward in C: %s", reason)
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            return library_for_this_machine(Path(folder))
        except (OSError, NoLibraryError) as reason:
            _log.info("No forward in C: %s", reason)
            return None
