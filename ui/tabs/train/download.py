"""The Train tab's button that packs the visitor's own heads and hands them to their browser.

The zip is made when it is asked for, under a name of the app's, in a folder whose name nobody can guess and
which gradio serves; its ``delete_cache`` deletes old ones.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.events import QUIET
from ui.components.text_line import TextLine
from ui.records.selection import Selection
from ui.records.updates import Update
from ui.session import Session
from ui.tabs.run_bar import shown
from ui.tabs.train.head_zip import ZIP_NAME, write_zip

if TYPE_CHECKING:
    from ui.tabs.train.run import Trained


PACKING = "Packing the heads…"
FETCH = """(file) => {
  if (!file) return;
  const link = document.createElement("a");
  link.href = file.url;
  link.download = file.orig_name;
  link.click();
}"""
log = logging.getLogger(__name__)
MOST_FILES = 6  # at a time, so that repeated clicks do not fill the disk


class DownloadFolder:
    """Hands out files for one visitor; each has a folder of its own, which goes with it. For any thread."""

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


def download_buttons() -> tuple[gr.Button, gr.DownloadButton]:
    """The button that is seen, and one that only holds the address of what was packed."""
    seen = gr.Button("Download heads", interactive=False, elem_id="train-download")
    return seen, gr.DownloadButton(visible="hidden", elem_id="train-download-file")


def connect_download(
    session: Session, button: gr.Button, packed: gr.DownloadButton, trained: gr.State, status: TextLine
) -> None:
    """The button packs the heads of `trained`, and the browser fetches them once their address is there."""
    handout = DownloadFolder(Path(packed.GRADIO_CACHE))
    said = button.click(lambda: PACKING, None, status, queue=False, **QUIET)
    made = said.then(
        lambda done: _packed(session, handout, done), trained, [packed, status],
        concurrency_id="pack", concurrency_limit=1, **QUIET,
    )  # fmt: skip
    made.then(None, packed, None, js=FETCH, **QUIET)


def _packed(session: Session, handout: DownloadFolder, trained: Trained | None) -> tuple[Any, Any]:
    """The zip of the visitor's own heads and a word on it; what cannot be packed is said."""
    if trained is None:
        return None, gr.skip()
    try:
        engine = session.own_engine(Selection(trained.engine))
        file = handout.make(ZIP_NAME, lambda path: write_zip(engine, trained.package, path))
    except MedusaError as error:
        return None, shown(Update(status=str(error), problem=True))[0]
    except OSError as error:
        log.warning("the heads could not be packed: %s", error)
        words = "The heads could not be packed: the disk of this machine is full or cannot be written."
        return None, shown(Update(status=words, problem=True))[0]
    return str(file), f"{ZIP_NAME}, {file.stat().st_size / 1e6:.1f} MB: unpack it and start with --heads."
