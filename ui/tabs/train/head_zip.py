"""Trained heads as a zip that a visitor takes home, to be named with ``--heads`` once it is unpacked.

What the app's memory holds is written when it is asked for; only an adapter's files are kept from the run,
since the engine has them merged. Knows an engine and its heads, no run and no component of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_STORED, ZipFile

from medusa_core.checkpoints.names import ADAPTER_CONFIG, ADAPTER_NAME, EMBEDDED
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError, counted
from medusa_core.training.fit.report import Card, tree_line, use_commands

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.compare_heads import Gained

FOLDER = "medusa-heads"  # in the zip
ZIP_NAME = f"{FOLDER}.zip"
MOST_BYTES = 256_000_000
_BYTES_EACH = 2  # heads are saved in bfloat16


@dataclass(frozen=True)
class Adapter:
    """The files of an adapter by name, and their size; too large a one is not kept."""

    files: tuple[tuple[str, bytes], ...] = ()
    size: int = 0

    @classmethod
    def beside(cls, folder: Path) -> Adapter:
        """That of finished heads; of no size where there is none."""
        from medusa_core.checkpoints.locate import has_adapter  # noqa: PLC0415 - pulls in torch

        if not has_adapter(folder):
            return cls()
        files = [folder / name for name in (ADAPTER_CONFIG, ADAPTER_NAME)]
        size = sum(file.stat().st_size for file in files)
        kept = files if size <= MOST_BYTES else []
        return cls(tuple((file.name, file.read_bytes()) for file in kept), size)


@dataclass(frozen=True)
class HeadPackage:
    """What goes with heads that were trained: what they call their base, their card, their adapter."""

    base: str
    card: str
    adapter: Adapter


def base_name(engine: Engine, folder: str, *, public: bool) -> str:
    """What heads for this engine's base call it: a name, or on one's own machine the folder it lies in."""
    return engine.info.base if _findable(engine.info.base) or public else folder


def card(base: str, what: str, gained: Gained) -> str:
    """The README of the zip. `what` says how they were trained."""
    flags = f"--heads {FOLDER}" + ("" if _findable(base) else f" --model WHERE_{base}_LIES")
    found, gain = gained.found, gained.gain
    tree = medusa_draft(gained.engine).tree("default")
    speed = () if gain is None else (
        f"{counted(gain.prompts, 'prompt')} at temperature 0: {gain.tokens_per_step:.2f} tokens a step, "
        f"{gain.speedup:.2f} times the speed of plain decoding; with fresh heads "
        f"{gain.fresh_tokens_per_step:.2f} and {gain.fresh_speedup:.2f}.",
    )  # fmt: skip
    return Card(
        title=f"Medusa heads for {'the embedded model' if base == EMBEDDED else base}",
        summary=[what, "", "`config.json` names the base, and `--model` another place of it."],
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
    """Write heads, tree, accuracies, card and adapter. Raises MedusaError for heads that are too large."""
    from medusa_core.drafters.medusa.files import save_heads  # noqa: PLC0415 - pulls in torch
    from medusa_core.training.fit.result import write_accuracies, write_tree  # noqa: PLC0415

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
        write_tree(folder, draft.tree("default").choices)
        write_accuracies(folder, {"accuracies": draft.accuracies})
        (folder / "README.md").write_text(package.card, encoding="utf-8")
        for part, content in package.adapter.files:
            (folder / part).write_bytes(content)
        # shutil.make_archive always compresses: 13 seconds instead of 0.1 for 64 MB, to save a fifth.
        with ZipFile(file, "w", ZIP_STORED) as packed:
            for each in sorted(folder.iterdir()):
                packed.write(each, f"{FOLDER}/{each.name}")


def _findable(base: str) -> bool:
    """Whether that name of a base is enough: the embedded model, a repository or a path."""
    return base == EMBEDDED or "/" in base
