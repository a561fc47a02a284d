"""Whether a transformers model has the adapter that heads were trained with. Needs no peft.

peft's layers are known by what they are called: they carry ``lora_A`` by the names of adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from medusa_core.checkpoints.files import read_tensors
from medusa_core.checkpoints.names import ADAPTER_NAME

_PREFIX = "base_model.model."  # prefix of the names in peft's files


def has_loaded(model: torch.nn.Module, folder: Path) -> bool:
    """Whether the adapter beside the heads in ``folder`` is in the model, and switched on.

    Raises MedusaError when the adapter's file cannot be read.
    """
    wanted = read_tensors(folder, ADAPTER_NAME, lambda _: True, "adapter")
    own = dict(model.named_parameters())

    def is_in_model(adapter: str, name: str, tensor: torch.Tensor) -> bool:
        # In the model each tensor's name has that of its adapter in it.
        found = own.get(name.removeprefix(_PREFIX).removesuffix("weight") + f"{adapter}.weight")
        if found is None or found.shape != tensor.shape:
            return False
        return torch.equal(found.detach().cpu(), tensor.to(found.dtype))

    layers: list[Any] = [module for module in model.modules() if hasattr(module, "lora_A")]
    adapters = {name for layer in layers if not layer.disable_adapters for name in layer.active_adapters}
    return bool(wanted) and any(all(is_in_model(name, *item) for item in wanted.items()) for name in adapters)
