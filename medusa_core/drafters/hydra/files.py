"""Recognise, read and write a folder with Hydra heads, and count the numbers in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from huggingface_hub import save_torch_state_dict

from medusa_core.checkpoints.files import (
    State,
    read_config,
    read_pickled,
    read_tensors,
    tensor_headers,
)
from medusa_core.checkpoints.heads import SHARD_SIZE, disk_errors, write_config
from medusa_core.checkpoints.names import BASE_KEY, CONFIG_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.hydra.layout import Arch, Kind, is_unused, kind_of, to_public
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize

_FILE_NAME = "hydra_lm_head"
_COUNT_KEY = "hydra_num_heads"  # in the config


def owns(folder: Path) -> bool:
    """Whether the folder holds Hydra heads, or says so where only its small files were fetched so far.

    Raises MedusaError for a damaged config.
    """
    return bool(_tensor_files(folder)) or _COUNT_KEY in read_config(folder)


def _tensor_files(folder: Path) -> list[Path]:
    """The files with the heads' tensors: safetensors, in shards or not, before the pickle."""
    pickled = folder / f"{_FILE_NAME}.pt"
    return sorted(folder.glob(f"{_FILE_NAME}*.safetensors")) or ([pickled] if pickled.is_file() else [])


def read_state(folder: Path) -> State:
    """All tensors under their public names. Raises MedusaError for damaged files, or where none are."""
    files = _tensor_files(folder)
    if not files:
        raise MedusaError(
            f"{folder} has a {CONFIG_NAME} of Hydra heads and no {_FILE_NAME}.safetensors or "
            f"{_FILE_NAME}.pt: fetch or save the heads again"
        )
    if files[0].suffix == ".pt":
        return read_pickled(files[0])
    return read_tensors(folder, f"{_FILE_NAME}.safetensors", lambda _: True)


def save_heads(
    heads: HydraHeads,
    folder: Path,
    base: str,
    embedding: torch.Tensor,
    dtype: torch.dtype | None = None,
) -> None:
    """Write heads in the public layout, as safetensors of at most 9 MB each.

    ``base`` is the name of their base and ``embedding`` [V, d] its input embedding, of which the public code
    wants a copy in the file.
    """
    config = {
        BASE_KEY: base,
        _COUNT_KEY: heads.count,
        "hydra_num_layers": heads.layers,
        "hydra_head_arch": (Arch.MLP if heads.prefix is None else Arch.PREFIX_MLP).value,
        "grounded_heads": True,
        "hidden_state_offset": 0,
    }
    write_config(folder, config)
    state: State = {}
    for name, tensor in to_public(heads, embedding).items():
        moved = tensor.to("cpu", dtype)
        # The same numbers are held once: LM heads that are the base's, and the embedding they are tied to.
        same = (held for held in state.values() if held.shape == moved.shape and torch.equal(held, moved))
        state[name] = next(same, moved)
    with disk_errors():
        save_torch_state_dict(
            state, folder, filename_pattern=_FILE_NAME + "{suffix}.safetensors", max_shard_size=SHARD_SIZE
        )


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory heads take beside ``base``. Raises MedusaError when a file is damaged or of another kind."""
    kind = kind_of(read_config(folder), str(folder))
    files = _tensor_files(folder)
    if not files:
        weights = _by_config(kind, base)
    elif files[0].suffix == ".pt":
        held = read_pickled(files[0], mapped=True).items()
        # A block that is used twice has two names and one storage.
        weights = sum({t.data_ptr(): t.numel() for name, t in held if not is_unused(name)}.values())
    else:
        headers = [tensor for file in files for tensor in tensor_headers(file)]
        # LM heads that are the base's may be held under the name of its embedding alone.
        own = any(tensor.name.startswith(_FILE_NAME) for tensor in headers if tensor.name.endswith("weight"))
        weights = sum(tensor.count for tensor in headers if not (own and is_unused(tensor.name)))
    # The layer in front of the heads is shaped as one of the base's, and so are its keys and values.
    cached = 2 * base.key_value_width if kind.arch is Arch.PREFIX_MLP else 0
    return DraftSize(weights, cached)


def _by_config(kind: Kind, base: ModelSize) -> int:
    d = base.width
    count = 0
    for head in range(kind.heads):
        count += 2 * ((head + 2) * d * d + d) + base.vocabulary * d + base.vocabulary
        count += d * d + d if kind.layers > 1 else 0  # further layers are one, repeated
    if kind.arch is Arch.PREFIX_MLP:
        count += 2 * d * d + 2 * d * base.key_value_width + 3 * d * base.intermediate + 3 * d
    return count
