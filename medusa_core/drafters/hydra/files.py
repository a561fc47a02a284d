"""Files of Hydra heads in a folder: which they are, out of them and into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict

from medusa_core.checkpoints.files import read_pickled, read_tensors
from medusa_core.checkpoints.names import BASE_KEY, CONFIG_NAME
from medusa_core.checkpoints.write import SHARD_SIZE, disk_errors, write_config, write_file
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.hydra.layout import Arch, State, to_public
from medusa_core.drafters.hydra.recognize import COUNT_KEY, FILE_NAME, tensor_files
from medusa_core.errors import MedusaError


def read_state(folder: Path) -> State:
    """All tensors under their public names. Raises MedusaError for damaged files, or where none are."""
    files = tensor_files(folder)
    if not files:
        raise MedusaError(
            f"{folder} has a {CONFIG_NAME} of Hydra heads and no {FILE_NAME}.safetensors or {FILE_NAME}.pt: "
            "fetch or save the heads again"
        )
    if files[0].suffix == ".pt":
        return read_pickled(files[0])
    return read_tensors(folder, f"{FILE_NAME}.safetensors", lambda _: True)


def save_heads(
    heads: HydraHeads,
    folder: Path,
    base: str,
    embedding: torch.Tensor,
    dtype: torch.dtype | None = None,
    *,
    pickled: bool = False,
) -> None:
    """Write heads in the public layout, as safetensors of at most 9 MB each or as one ``.pt``.

    ``base`` is the name of their base and ``embedding`` [V, d] its input embedding, of which the public code
    wants a copy in the file.
    """
    write_config(folder, public_config(heads, base))
    state: State = {}
    for name, tensor in to_public(heads, embedding).items():
        moved = tensor.to("cpu", dtype)
        # The same numbers are held once: LM heads that are the base's, and the embedding they are tied to.
        state[name] = next((held for held in state.values() if _same(held, moved)), moved)
    if pickled:
        write_file(state, folder / f"{FILE_NAME}.pt")
        return
    with disk_errors():
        save_torch_state_dict(
            state, folder, filename_pattern=FILE_NAME + "{suffix}.safetensors", max_shard_size=SHARD_SIZE
        )


def public_config(heads: HydraHeads, base: str) -> dict[str, Any]:
    """The config of the public code."""
    arch = Arch.MLP if heads.prefix is None else Arch.PREFIX_MLP
    return {
        BASE_KEY: base,
        COUNT_KEY: heads.count,
        "hydra_num_layers": heads.layers,
        "hydra_head_arch": arch.value,
        "grounded_heads": True,
        "hidden_state_offset": 0,
    }


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first, second)
