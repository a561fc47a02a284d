"""The forward in C for this machine, kept in the user's cache folder."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from medusa_core.llama.library import Library, NoLibraryError, library_for_this_machine
from medusa_core.loading.remembered import cache_folder

_log = logging.getLogger(__name__)


def native_library() -> Library | NoLibraryError:
    """Why there is none, which a log message says too, where this machine can have none."""
    try:
        return library_for_this_machine(cache_folder())
    except OSError:
        pass  # a folder that cannot be written to: compiled for this process alone
    except NoLibraryError as reason:
        return _without(reason)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return library_for_this_machine(Path(folder))
        except OSError as error:
            _log.info("The library cannot be kept or loaded: %s", error)
            return _without(NoLibraryError("what was compiled cannot be loaded"))
        except NoLibraryError as reason:
            return _without(reason)


def _without(reason: NoLibraryError) -> NoLibraryError:
    _log.info("No forward in C: %s", reason)
    return reason
