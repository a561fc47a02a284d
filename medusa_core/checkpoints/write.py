"""Heads into a folder: tensors under the names of a format, in shards, in one file or as ``.pt``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from safetensors.torch import save_file

from medusa_core.checkpoints.layouts import HeadTensors, State, to_public
from medusa_core.checkpoints.names import BASE_KEY, CONFIG_NAME, HEADS_NAME
from medusa_core.errors import reason_of

_TORCH_WRITER = ("inline_container", "PytorchStreamWriter")  # in what torch says of a disk that is full
SHARD_SIZE = "9MB"  # a Space takes files up to 10 MB without large-file storage


def write_heads(tensors: HeadTensors, folder: Path, base: str) -> None:
    """Write tensors as they are, in format v1 or v2, as safetensors of at most 9 MB each."""
    state = to_public(tensors)
    write_config(folder, public_config(tensors, base))
    pattern = HEADS_NAME + "{suffix}.safetensors"
    with disk_errors():
        save_torch_state_dict(state, folder, filename_pattern=pattern, max_shard_size=SHARD_SIZE)


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json, and make the folder for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_file(state: State, file: Path) -> None:
    """Write all tensors into one file: safetensors, or a dictionary of tensors where it is called .pt."""
    with disk_errors():
        if file.suffix == ".pt":
            torch.save(state, file)
        else:
            save_file({name: tensor.contiguous() for name, tensor in state.items()}, file, {"format": "pt"})


@contextmanager
def disk_errors() -> Iterator[None]:
    """A full disk, for which each writer of tensors has an error of its own, becomes an OSError again."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(reason_of(error).removeprefix("Error while serializing: ")) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _TORCH_WRITER):
            raise
        raise OSError("the file could not be written to its end") from error


def public_config(tensors: HeadTensors, base: str) -> dict[str, Any]:
    """The config of v1 and v2."""
    config: dict[str, Any] = {
        BASE_KEY: base,
        "medusa_num_heads": tensors.count,
        "medusa_num_layers": tensors.layers,
    }
    return config if tensors.lm_weight is not None else config | {"version": "2"}
