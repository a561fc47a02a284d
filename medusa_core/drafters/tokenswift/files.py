"""Recognises, reads and writes a folder with TokenSwift heads, alone or in their target's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from medusa_core.checkpoints.files import (
    State,
    headers,
    read_config,
    read_pickled,
    read_tensors,
)
from medusa_core.checkpoints.heads import write_config, write_file
from medusa_core.checkpoints.names import BASE_KEY, PICKLED_NAME, WEIGHTS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.tokenswift.layout import COUNT_KEY, PREFIX, count_of, numbers, to_public
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
    from medusa_core.loading.model_size import ModelSize


def owns(folder: Path) -> bool:
    """Whether the config has a number of such heads, as no other drafter's has.

    Raises MedusaError for a damaged config.
    """
    return COUNT_KEY in read_config(folder)


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory that heads take beside ``base``, by the files' headers or else by the config.

    The cache that they draft over has a fixed size, whatever the text's length. Raises MedusaError.
    """
    count = count_of(read_config(folder), str(folder))
    held = headers(folder, WEIGHTS_NAME, lambda name: name.startswith(PREFIX))
    return DraftSize(sum(header.count for header in held) or numbers(count, base.width))


def read_state(folder: Path) -> State:
    """The heads' tensors and no others, under their public names. Raises MedusaError for damaged files."""
    state = read_tensors(folder, WEIGHTS_NAME, lambda name: name.startswith(PREFIX))
    if not state and (pickled := folder / PICKLED_NAME).is_file():
        held = read_pickled(pickled)
        state = {name: tensor for name, tensor in held.items() if str(name).startswith(PREFIX)}
    if not state and not any(folder.glob("*.safetensors")):
        raise MedusaError(f"{folder} has no {WEIGHTS_NAME}: fetch or save the heads again")
    return state


def save_heads(
    heads: TokenSwiftHeads, folder: Path, base: str, dtype: torch.dtype | None = torch.bfloat16
) -> None:
    """Write heads alone, under the public names; ``base`` is the name of the model they were made for."""
    write_config(folder, {BASE_KEY: base, COUNT_KEY: heads.count})
    state = {name: tensor.to("cpu", dtype) for name, tensor in to_public(heads).items()}
    write_file(state, folder / WEIGHTS_NAME)
