"""Downloads from the hub that report their progress and can be cancelled, also while the network is silent.

huggingface_hub downloads in threads of its own; one more waits for it here, so that the caller is told of the
progress in its own thread and may cancel there.
"""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_cached_repo_tree, try_to_load_from_cache
from huggingface_hub.errors import CachedRepoTreeNotFoundError
from huggingface_hub.utils import filter_repo_objects
from tqdm import tqdm

from medusa_core.errors import MedusaError
from medusa_core.words import bytes_words

POLL_SECONDS = 0.1  # seconds between two reports to the caller

Progress = Callable[[str, float | None], None]  # words for a person, and the share that is done


class DownloadCancelledError(Exception):
    """Raised inside the hub's threads once the download is cancelled."""


@dataclass(frozen=True)
class Wanted:
    """Files of a repository: those whose names fit a pattern, but none that fits ``unwanted``."""

    repository: str
    revision: str | None
    patterns: list[str]
    unwanted: list[str]

    def missing_bytes(self) -> int | None:
        """Bytes of the files that are not in the cache; None until the hub has listed its files.

        Read from what the download under way has stored. A dry run of ``snapshot_download`` would ask the hub
        again, for the list and for each file, and raise one error for all reasons where it cannot.
        """
        try:
            files = get_cached_repo_tree(self.repository, revision=self.revision)
        except CachedRepoTreeNotFoundError:
            return None
        chosen = filter_repo_objects(
            files, allow_patterns=self.patterns, ignore_patterns=self.unwanted, key=lambda file: file.path
        )
        cached = partial(try_to_load_from_cache, self.repository, revision=self.revision)
        return sum(file.size for file in chosen if not isinstance(cached(file.path), str))


class _Transfer:
    """The bytes of one download, counted by bars that the hub's threads move and that are not shown."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._total: int | None = None
        self._bars: list[tqdm] = []
        self.cancelled = threading.Event()

    def bar_class(self) -> type[tqdm]:
        """The class of bars that are read here, and that end their threads once the download is cancelled."""
        transfer = self

        class Bar(tqdm):
            monitor_interval = 0  # no thread that redraws

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options | {"file": io.StringIO(), "disable": False})
                if self.unit == "B":
                    transfer._bars.append(self)

            def update(self, n: float | None = 1) -> bool | None:
                if transfer.cancelled.is_set():
                    raise DownloadCancelledError
                return super().update(n)

        Bar.set_lock(threading.RLock())
        return Bar

    def report(self, progress: Progress) -> None:
        """Report the progress. Raises MedusaError when the disk has no room for the rest."""
        name = self._wanted.repository
        if not any(bar.total for bar in self._bars):
            progress(f"Asking the hub for {name}", None)
            return
        # Xet moves one bar for the network and one for the disk, plain downloads the latter alone.
        done = max(int(bar.n) for bar in self._bars)
        if self._total is None:
            missing = self._wanted.missing_bytes()
            self._total = max(missing or 0, *(int(bar.total or 0) for bar in self._bars))
            self._require_disk(self._total - done)
        share = min(1.0, done / self._total)
        progress(f"Downloading {name}: {bytes_words(done)} of {bytes_words(self._total)}", share)

    def close(self) -> None:
        """Free the bars' places: tqdm would show the next one below them."""
        for bar in self._bars:
            bar.close()

    def _require_disk(self, needed: int) -> None:
        cache = Path(constants.HF_HUB_CACHE)
        free = shutil.disk_usage(next(folder for folder in (cache, *cache.parents) if folder.is_dir())).free
        if needed > free:
            raise MedusaError(
                f"{self._wanted.repository} needs {bytes_words(needed)} of disk, "
                f"{bytes_words(free)} are free in {cache}: free some, or set HF_HOME to a larger disk"
            )


def download_with_progress(download: Callable[[type[tqdm]], str], wanted: Wanted, progress: Progress) -> Path:
    """The result of ``download``, called with the class of its bars, while ``progress`` gets reports.

    An exception that ``progress`` raises ends the download; what has arrived stays in the hub's cache.
    """
    transfer = _Transfer(wanted)
    executor = ThreadPoolExecutor(max_workers=1)
    running = executor.submit(download, transfer.bar_class())
    try:
        while not wait([running], timeout=POLL_SECONDS).done:
            transfer.report(progress)
    except BaseException:
        transfer.cancelled.set()
        _abort_xet()
        raise
    finally:
        executor.shutdown(wait=False)
        transfer.close()
    return Path(running.result())


def _abort_xet() -> None:
    """End transfers of hf_xet, which asks no bar: what huggingface_hub itself does at Ctrl-C."""
    with suppress(ImportError):  # there is no public way, so a newer huggingface_hub may have none
        from huggingface_hub.utils._xet import abort_xet_session  # noqa: PLC0415 - may be gone

        abort_xet_session()
