"""The Train tab's button that packs the visitor's own heads and hands them to their browser.

The zip is made when it is asked for, under a name and in a folder of the app's.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.events import QUIET
from ui.components.text_line import TextLine
from ui.records.selection import Selection
from ui.records.updates import Update
from ui.serving.temporary_files import DownloadFolder
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
