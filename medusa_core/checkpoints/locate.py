"""From a name to a folder: a path on this disk, or a hub repository with an optional ``@revision``.

Downloads go through huggingface_hub, so its cache, ``HF_TOKEN``, a stored login and ``HF_HUB_OFFLINE`` count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from httpx import HTTPError
from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from medusa_core.checkpoints.names import (
    ADAPTER_CONFIG,
    CONFIG_NAME,
    GPU_TREE_NAME,
    MODEL_FILES,
    TREE_NAME,
)
from medusa_core.errors import MedusaError

_OFFLINE = "HF_HUB_OFFLINE is set and it is not in the cache; unset it, or name a folder"


def embedded_model() -> Path:
    """The folder of the model that is part of the project."""
    return Path(__file__).resolve().parents[2] / "assets" / "model"


def as_folder(name: str) -> Path | None:
    """The folder of that name on this disk, if there is one."""
    try:
        folder = Path(name).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # no such home, a name too long, a character no path has
        return None


def locate(name: str, patterns: Sequence[str]) -> Path:
    """A local folder as it is, or the files of a hub repository downloaded to the cache.

    ``name`` is a path, ``owner/repository`` or ``owner/repository@revision``. Raises MedusaError.
    """
    if folder := as_folder(name):
        return folder
    repository, _, revision = name.partition("@")
    if name.startswith((".", "/", "~")) or repository.count("/") > 1:
        raise MedusaError(f"there is no folder {name}: check the path")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, HTTPError, OSError) as error:
        raise MedusaError(_why_not(name, error)) from error


def locate_model(name: str) -> Path:
    """The folder of a model and its tokenizer, downloaded if need be. Raises MedusaError."""
    folder = locate(name, MODEL_FILES)
    if not (folder / CONFIG_NAME).is_file():
        raise MedusaError(f"{folder} has no {CONFIG_NAME}: it is not a model folder")
    return folder


def beside_heads(folder: Path, name: str) -> Path | None:
    """A file that was made for these heads, their tree or their accuracies, when there is one."""
    file = folder / name
    return file if file.is_file() else None


def tree_beside(folder: Path, device: torch.device) -> Path | None:
    """The tree that was made for these heads and this kind of device, else the one there is.

    A GPU verifies many nodes in about the time of one, so its best tree is larger than a CPU's.
    """
    own = beside_heads(folder, GPU_TREE_NAME) if device.type != "cpu" else None
    return own or beside_heads(folder, TREE_NAME)


def has_adapter(folder: Path) -> bool:
    """Whether the heads come with the low-rank adapter their base was trained with (Medusa-2)."""
    return (folder / ADAPTER_CONFIG).is_file()


def _why_not(name: str, error: Exception) -> str:
    """One line: what could not be had, why, and what to do."""
    # Of an error that is several of these, the first says most.
    reasons = {
        GatedRepoError: "its owner asks for consent; accept it on the hub, then set HF_TOKEN or log in",
        RepositoryNotFoundError: "the hub knows none; check the name, or set HF_TOKEN if it is private",
        RevisionNotFoundError: "the repository has no such revision; check what follows the @",
        HFValidationError: "that is no name of a repository; write owner/name, or check the path",
        OfflineModeIsEnabled: _OFFLINE,
        LocalEntryNotFoundError: _OFFLINE
        if HF_HUB_OFFLINE
        else "the hub cannot be reached and it is not in the cache; check the network",
    }
    plain = f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
    why = next((text for kind, text in reasons.items() if isinstance(error, kind)), plain)
    return f"{name!r} is neither a folder here nor a repository that can be fetched: {why}"
