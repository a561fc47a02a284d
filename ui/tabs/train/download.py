"""The Train tab's button: it packs the heads as a zip, to be named with ``--heads`` once unpacked.

The zip is made on request, under a name that the app chooses. gradio moves it to a folder whose name nobody
can guess; the same heads have one file there, however often they are requested. The page's
``delete_cache`` deletes old ones. What the app holds in memory is written then; only an adapter's files are
kept from the run, since the engine has them merged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, ZipInfo

import gradio as gr

from medusa_core.checkpoints.locate import has_adapter
from medusa_core.checkpoints.names import ACCURACIES_NAME, ADAPTER_CONFIG, ADAPTER_NAME, EMBEDDED, TREE_NAME
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.errors import MedusaError, counted
from medusa_core.training.fit.report import Card, tree_line, use_commands
from ui.components.events import AT_ONCE, QUIET
from ui.components.views import TextLine
from ui.runs.session import Session

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.compare_heads import Gained
    from ui.tabs.train.run import Trained


PACKING = "Packing the heads…"
NOT_PACKED = "The heads could not be packed: the disk of this machine is full or cannot be written."
FETCH = """(file) => {
  if (!file) return;
  const link = document.createElement("a");
  link.href = file.url;
  link.download = file.orig_name;
  link.click();
}"""
log = logging.getLogger(__name__)
FOLDER = "medusa-heads"  # in the zip
ZIP_NAME = f"{FOLDER}.zip"
MOST_BYTES = 256_000_000
_BYTES_EACH = 2  # heads are saved in bfloat16


def connect_download(session: Session, button: gr.Button, trained: gr.State, status: TextLine) -> None:
    """The button packs the heads of `trained`, and the browser fetches them once it has their address."""
    packed = gr.DownloadButton(visible="hidden", elem_id="train-download-file")  # holds the address
    said = button.click(lambda: PACKING, None, status, **AT_ONCE)
    made = said.then(
        partial(_packed, session, packed), trained, [packed, status],
        concurrency_id="pack", concurrency_limit=1, **QUIET,
    )  # fmt: skip
    made.failure(lambda: NOT_PACKED, None, status, **AT_ONCE)
    made.success(None, packed, None, js=FETCH, **QUIET)


def _packed(
    session: Session, button: gr.DownloadButton, trained: Trained | None
) -> Iterator[tuple[Any, Any]]:
    """The zip of the visitor's own heads and a message about it, or why it cannot be packed."""
    if trained is None:
        yield None, gr.skip()
        return
    with TemporaryDirectory(prefix="medusa-zip-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / ZIP_NAME
        try:
            write_zip(session.own_engine(trained.selection), trained.package, file)
            # On this thread: gradio would hash and copy the file in its event loop.
            kept = button.move_resource_to_block_cache(file)
        except MedusaError as error:
            yield None, str(error)
        except OSError as error:
            log.warning("the heads could not be packed: %s", error)
            yield None, NOT_PACKED
        else:
            size = file.stat().st_size / 1e6
            yield kept, f"{ZIP_NAME}, {size:.1f} MB: unpack it and start with --heads."


@dataclass(frozen=True)
class Adapter:
    """The files of an adapter by name, and their size; one that is too large is not kept."""

    files: tuple[tuple[str, bytes], ...] = ()
    size: int = 0

    @classmethod
    def beside(cls, folder: Path) -> Adapter:
        """The adapter saved with finished heads; empty where there is none."""
        if not has_adapter(folder):
            return cls()
        files = [folder / name for name in (ADAPTER_CONFIG, ADAPTER_NAME)]
        size = sum(file.stat().st_size for file in files)
        kept = files if size <= MOST_BYTES else []
        return cls(tuple((file.name, file.read_bytes()) for file in kept), size)


@dataclass(frozen=True)
class HeadPackage:
    """What is packed with trained heads: the name of their base, their card, their adapter."""

    base: str
    card: str
    adapter: Adapter


def base_name(engine: Engine, folder: str, *, public: bool) -> str:
    """How heads refer to this engine's base: by name, or on one's own machine by its folder."""
    return engine.info.base if _findable(engine.info.base) or public else folder


def card(base: str, what: str, gained: Gained) -> str:
    """The README of the zip. `what` says how they were trained."""
    flags = f"--heads {FOLDER}" + ("" if _findable(base) else f" --model WHERE_{base}_LIES")
    found, gain = gained.found, gained.gain
    tree = medusa_draft(gained.engine).tree("default")
    speed = () if gain is None else (
        f"{counted(gain.prompts, 'prompt')} at temperature 0: {gain.tokens_per_step:.2f} tokens a step "
        f"and, inside steps, {gain.speedup:.2f} times the speed of plain decoding; with fresh heads "
        f"{gain.fresh_tokens_per_step:.2f} and {gain.fresh_speedup:.2f}.",
    )  # fmt: skip
    return Card(
        title=f"Medusa heads for {'the embedded model' if base == EMBEDDED else base}",
        summary=[what, "", "`config.json` names the base, and `--model` names another place of it."],
        commands=use_commands(flags),
        training=(),
        accuracy=f"over {counted(found.accuracies.positions, 'position')} of text after the example prompts",
        accuracies=found.accuracies.shares,
        tree=tree_line(
            tree.size, max(tree.depths), found.best_tree.expected_length, timed=bool(found.rounds)
        ),
        speed=speed,
    ).text()


def write_zip(engine: Engine, package: HeadPackage, file: Path) -> None:
    """Write heads, tree, accuracies, card and adapter; equal heads give equal bytes.

    Raises MedusaError for heads that are too large.
    """
    draft = medusa_draft(engine)
    size = _BYTES_EACH * sum(p.numel() for p in draft.heads.parameters()) + package.adapter.size
    if size > MOST_BYTES:
        raise MedusaError(
            f"the heads take {size / 1e6:.0f} MB, the page hands out {MOST_BYTES / 1e6:.0f}: "
            "train them with `python -m medusa_core train`, which leaves them in a folder"
        )
    with TemporaryDirectory(prefix="medusa-zip-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        save_heads(draft.heads, folder, package.base)
        (folder / TREE_NAME).write_text(
            json.dumps({"choices": draft.tree("default").choices}) + "\n", "utf-8"
        )
        (folder / ACCURACIES_NAME).write_text(json.dumps({"accuracies": draft.accuracies}) + "\n", "utf-8")
        (folder / "README.md").write_text(package.card, encoding="utf-8")
        for part, content in package.adapter.files:
            (folder / part).write_bytes(content)
        # Not compressed: 13 seconds instead of 0.1 for 64 MB, to save a fifth. A bare ZipInfo has no time.
        with ZipFile(file, "w") as packed:
            for each in sorted(folder.iterdir()):
                entry = ZipInfo(f"{FOLDER}/{each.name}")
                entry.external_attr = 0o644 << 16
                packed.writestr(entry, each.read_bytes())


def _findable(base: str) -> bool:
    """Whether that name of a base is enough: the embedded model, a repository or a path."""
    return base == EMBEDDED or "/" in base
