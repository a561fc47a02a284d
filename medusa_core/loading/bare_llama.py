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
from medusa_core.checkpoints.files import shards
from medusa_core.checkpoints.names import ADAPTER_CONFIG, INDEX_NAME, WEIGHTS_NAME
from medusa_core.checkpoints.plain_llama import plain_llama_config
from medusa_core.loading.devices import Placement
from medusa_core.model.bare_llama import BareLlama, BareModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from medusa_core.loading.weights import Share


_FLOATS = ("F32", "F16", "BF16")  # as safetensors names them


def read_bare_llama(folder: Path, placement: Placement, progress: Share) -> BareModel | None:
    """The model in ``folder``; None for what transformers is to read, or to refuse.

    Raises MedusaError.
    """
    whole_on_cpu = placement.device.type == "cpu" and placement.device_map is None
    config = plain_llama_config(folder) if whole_on_cpu else None
    if config is None:
        return None
    bare = BareLlama(config)
    if (files := plain_llama_files(folder, bare)) is None:
        return None
    with reading_base(folder):
        bare.load(_tensors(files, placement.dtype, progress))

    def build(bare: BareLlama) -> PreTrainedModel:
        """transformers' model on the weights that are in memory already."""
        from medusa_core.loading.weights import read_model  # noqa: PLC0415 - its modules take a second

        model = read_model(folder, placement, "none", code=False, progress=lambda _: None)
        held = dict(bare.named_parameters())
        for name, parameter in model.named_parameters():
            parameter.data = held[name].data
        return model

    return BareModel(bare, build, folder)


def plain_llama_files(folder: Path, bare: BareLlama) -> dict[str, Path] | None:
    """In which file each tensor lies; None unless they are those of ``bare`` and no others.

    Reads headers alone.
    """
    whole = any((folder / name).is_file() for name in (WEIGHTS_NAME, INDEX_NAME))
    if not whole or (folder / ADAPTER_CONFIG).is_file():  # transformers would apply the adapter
        return None
    shapes = {name: [*parameter.shape] for name, parameter in bare.named_parameters()}
    found: dict[str, Path] = {}
    try:
        for file in shards(folder, WEIGHTS_NAME, lambda _: True):
            with safe_open(file, framework="pt") as opened:
                if (opened.metadata() or {}).get("format") != "pt":
                    return None
                for name in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(name)
                    fits = part.get_shape() == shapes.get(name) and part.get_dtype() in _FLOATS
                    if not fits or name in found:
                        return None
                    found[name] = file
    except Exception:  # of whatever kind: ``check_weights`` says what is wrong
        return None
    return found if found.keys() == shapes.keys() else None


def _tensors(files: Mapping[str, Path], dtype: torch.dtype, progress: Share) -> dict[str, torch.Tensor]:
    """All tensors in ``dtype``; those that have it in their file stay there until they are used.

    A file is mapped anew for each group of tensors that are released together, and the mapping goes with the
    last of them: a single mapping would hold the pages of all tensors as long as any of them is there.
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
