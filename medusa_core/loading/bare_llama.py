"""A plain Llama out of its files for the forward in C, without importing transformers' models.

Only for a CPU and plain numbers; every other load goes through ``weights``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open

from medusa_core.checkpoints.base import reading_base
from medusa_core.checkpoints.plain_llama import plain_llama_config, plain_llama_files
from medusa_core.loading.devices import Placement
from medusa_core.model.bare_llama import BareLlama, BareModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from medusa_core.loading.weights import Share


def read_bare_llama(folder: Path, placement: Placement, progress: Share) -> BareModel | None:
    """The model in ``folder``; None for what transformers is to read, or to refuse.

    Raises MedusaError.
    """
    whole_on_cpu = placement.device.type == "cpu" and placement.device_map is None
    config = plain_llama_config(folder) if whole_on_cpu else None
    files = plain_llama_files(folder, config) if config is not None else None
    if config is None or files is None:
        return None
    with reading_base(folder):
        bare = BareLlama(config, _tensors(files, placement.dtype, progress))

    def build(bare: BareLlama) -> PreTrainedModel:
        """transformers' model on the weights that are in memory already."""
        from medusa_core.loading.weights import read_model  # noqa: PLC0415 - its modules take a second

        model = read_model(folder, placement, "none", code=False, progress=lambda _: None)
        held = dict(bare.named_parameters())
        for name, parameter in model.named_parameters():
            parameter.data = held[name].data
        return model

    return BareModel(bare, build, folder)


def _tensors(files: Mapping[str, Path], dtype: torch.dtype, progress: Share) -> dict[str, torch.Tensor]:
    """All tensors in ``dtype``; those that have it in their file stay there until they are used.

    A file is mapped anew for each group of tensors that are let go together, with whose last one the mapping
    goes: a single one would hold pages of all tensors for as long as there is one of them.
    """
    groups: dict[tuple[Path, str, bool], list[str]] = {}
    for name, file in files.items():
        layer, _, part = name.rpartition(".layers.")[2].partition(".")
        groups.setdefault((file, layer, part.endswith("_proj.weight")), []).append(name)
    found: dict[str, torch.Tensor] = {}
    for (file, _, _), names in groups.items():
        with safe_open(file, framework="pt") as opened:
            for name in names:
                progress(len(found) / len(files))
                found[name] = opened.get_tensor(name).to(dtype)
    progress(1.0)
    return found
