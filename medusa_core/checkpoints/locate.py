"""From a name to a folder: a path on this disk, or a hub repository with an optional ``@revision``.

huggingface_hub downloads, with its cache, ``HF_TOKEN``, a stored login and ``HF_HUB_OFFLINE``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # error of huggingface_hub's client, httpx or httpx2
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm import tqdm

from medusa_core.checkpoints.download import Progress, Wanted, download_with_progress
from medusa_core.checkpoints.names import (
    ADAPTER_CONFIG,
    CONFIG_NAME,
    DRAFTERS_FOLDER,
    GPU_TREE_NAME,
    HEADS_FOLDER,
    MODEL_FILES,
    PICKLED_FILES,
    TREE_NAME,
)
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import project_folder, refuse_special_files

CODE_FILES = "*.py"
WEIGHT_FILES = ["*.safetensors", "*.pt"]
_TWICE = ["consolidated*"]  # Mistral's own copy of the weights
_OFFLINE = "HF_HUB_OFFLINE is set and it is not in the cache; unset it, or name a folder"


@dataclass(frozen=True)
class Fetch:
    """How files are fetched from the hub: who is told, and whether weights and the model's code come too."""

    progress: Progress = lambda words, done: None
    weights: bool = True
    code: bool = False


ALL_FILES = Fetch()


def embedded_model() -> Path:
    """The folder of the model that is part of the project."""
    return project_folder() / "assets" / "model"


def as_folder(name: str) -> Path | None:
    """The folder of that name on this disk, if there is one."""
    try:
        folder = Path(name).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # no such home, a name too long, a character no path has
        return None


def locate(name: str, patterns: Sequence[str], fetch: Fetch = ALL_FILES) -> Path:
    """A local folder as it is, or the files of a hub repository downloaded to the cache.

    ``name`` is a path, ``owner/repository`` or ``owner/repository@revision``. Raises MedusaError, and what
    ``fetch.progress`` raises to end the download.
    """
    if folder := as_folder(name):
        # Libraries open what they find in it, and would wait at a pipe forever.
        parts = (folder, folder / HEADS_FOLDER, *folder.glob(f"{DRAFTERS_FOLDER}/*"))
        for part in filter(Path.is_dir, parts):
            refuse_special_files(part)
        return folder
    if os.path.isfile(os.path.expanduser(name)):  # pathlib's raises for names that no file can have
        raise MedusaError(f"{name} is a file: name the folder that it lies in")
    repository, _, revision = name.partition("@")
    if name.startswith((".", "/", "~")) or repository.count("/") > 1:
        raise MedusaError(f"there is no folder {name}: check the path")
    wanted = Wanted(
        repository,
        revision or None,
        patterns=[*patterns, *([CODE_FILES] if fetch.code else [])],
        unwanted=[*_TWICE, *([] if fetch.weights else WEIGHT_FILES)],
    )
    return download_with_progress(lambda bars: _download(name, wanted, bars), wanted, fetch.progress)


def locate_model(name: str, fetch: Fetch = ALL_FILES) -> Path:
    """The folder of a model and its tokenizer, downloaded if need be. Raises MedusaError."""
    folder = locate(name, MODEL_FILES, fetch)
    if not (folder / CONFIG_NAME).is_file():
        raise MedusaError(f"{folder} has no {CONFIG_NAME}: it is not a model folder, name another")
    if fetch.weights and not as_folder(name) and not any(folder.glob("model*.safetensors")):
        return locate(name, [*MODEL_FILES, *PICKLED_FILES], fetch)
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


def _download(name: str, wanted: Wanted, bars: type[tqdm]) -> str:
    try:
        return snapshot_download(
            wanted.repository,
            revision=wanted.revision,
            allow_patterns=wanted.patterns,
            ignore_patterns=wanted.unwanted,
            tqdm_class=bars,
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, HTTPError, OSError) as error:
        raise MedusaError(_why_not(name, error)) from error


def _why_not(name: str, error: Exception) -> str:
    """One line: what could not be had, why, and what to do."""
    # Where an error is an instance of several, the first says most.
    reasons = {
        GatedRepoError: "its owner asks for consent; accept it on the hub, then set HF_TOKEN or log in",
        RepositoryNotFoundError: "the hub knows none; check the name, or set HF_TOKEN if it is private",
        RevisionNotFoundError: "the repository has no such revision; check what follows the @",
        HFValidationError: "that is not the name of a repository; write owner/name, or check the path",
        OfflineModeIsEnabled: _OFFLINE,
        LocalEntryNotFoundError: _OFFLINE
        if HF_HUB_OFFLINE
        else "the hub cannot be reached and it is not in the cache; check the network",
        HfHubHTTPError: f"{reason_of(error)}; check the name, set HF_TOKEN if it is private, or try later",
    }
    plain = f"{type(error).__name__}: {reason_of(error)}"
    why = next((text for kind, text in reasons.items() if isinstance(error, kind)), plain)
    return f"{name!r} is neither a folder here nor a repository that can be fetched: {why}"
