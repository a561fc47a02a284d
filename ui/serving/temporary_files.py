"""Files made for one visitor, in a folder that gradio serves; its ``delete_cache`` deletes old ones.

The name of each is the app's, in a folder whose name nobody can guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from uuid import uuid4

MOST_FILES = 6  # at a time, so that repeated clicks do not fill the disk


class DownloadFolder:
    """Hands out files; each has a folder of its own, which goes with it. For any thread."""

    def __init__(self, place: Path, most: int = MOST_FILES) -> None:
        """`place` is the cache folder of the component that the files are returned to."""
        self._place = place
        self._most = most
        self._folders: deque[TemporaryDirectory[str]] = deque()
        self._lock = Lock()

    def make(self, name: str, write: Callable[[Path], None]) -> Path:
        """The file `name`, written by `write` to the path it is given; where that raises, nothing stays."""
        self._place.mkdir(parents=True, exist_ok=True)
        # Whatever still lies there when the app ends goes with it.
        folder = TemporaryDirectory(prefix=f"{uuid4().hex}-", dir=self._place, ignore_cleanup_errors=True)
        try:
            write(Path(folder.name) / name)
        except BaseException:
            folder.cleanup()
            raise
        with self._lock:
            self._folders.append(folder)
            old = [self._folders.popleft() for _ in range(len(self._folders) - self._most)]
        for each in old:
            each.cleanup()
        return Path(folder.name) / name
