"""How many numbers Hydra heads and their cache have, by their files' headers or their config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from medusa_core.checkpoints.files import pickle_fault, read_config
from medusa_core.checkpoints.headers import tensor_headers
from medusa_core.drafters import DraftSize
from medusa_core.drafters.hydra.files import tensor_files
from medusa_core.drafters.hydra.layout import Arch, Kind, is_unused, kind_of
from medusa_core.drafters.hydra.recognize import FILE_NAME
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize


def size(folder: Path, base: ModelSize) -> DraftSize:
    """What the heads take beside ``base``. Raises MedusaError when a file is damaged or of another kind."""
    kind = kind_of(read_config(folder), str(folder))
    files = tensor_files(folder)
    if not files:
        weights = _by_config(kind, base)
    elif files[0].suffix == ".pt":
        weights = _pickled(files[0])
    else:
        headers = [tensor for file in files for tensor in tensor_headers(file)]
        # LM heads that are the base's may be held under the name of its embedding alone.
        own = any(tensor.name.startswith(FILE_NAME) for tensor in headers if tensor.name.endswith("weight"))
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


def _pickled(file: Path) -> int:
    try:
        # The numbers stay on the disk; torch's meta device would not show which ones are shared.
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        # A block that is used twice has two names and one storage.
        kept = {tensor.data_ptr(): tensor.numel() for name, tensor in state.items() if not is_unused(name)}
        return sum(kept.values())
    except Exception as error:  # a damaged pickle makes its reader stumble over anything
        raise MedusaError(f"cannot read the heads in {file.parent}: {pickle_fault(file, error)}") from error
