"""The LM head of a base, read from its files without the rest of it: to start heads from and to compare with.

V vocabulary · d hidden size
"""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.files import read_tensors
from medusa_core.checkpoints.names import WEIGHTS_NAME
from medusa_core.errors import MedusaError

_UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, TypeError, ImportError)


def read_lm_head(folder: Path) -> torch.Tensor:
    """The LM head [V, d] of the model in ``folder``, in its file's dtype; the embedding if they are tied.

    Raises MedusaError when the folder holds no model whose weights can be read.
    """
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow, and most readers need none

    try:
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except _UNREADABLE as error:
        raise MedusaError(f"cannot tell which model is in {folder}: {_reason(error)}") from error
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = model.config.get_text_config(decoder=True).tie_word_embeddings
    for module in (head, embedding) if tied else (head,):
        name = next(name for name, other in model.named_modules() if other is module) + ".weight"
        found = read_tensors(folder, WEIGHTS_NAME, lambda key, name=name: _same(key, name), "LM head")
        for tensor in found.values():
            if tensor.shape == head.weight.shape and tensor.is_floating_point():
                return tensor
    return _by_loading(folder)


def _by_loading(folder: Path) -> torch.Tensor:
    """The slow way, for checkpoints whose names transformers translates."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - as above

    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", use_safetensors=True, output_loading_info=True
        )
    except _UNREADABLE as error:
        raise MedusaError(f"cannot read the LM head in {folder}: {_reason(error)}") from error
    weight = model.get_output_embeddings().weight.detach()
    if report["missing_keys"] or not weight.is_floating_point():
        raise MedusaError(
            f"the weights in {folder} hold no LM head that can be read: fetch or save them again"
        )
    return weight


def _same(key: str, name: str) -> bool:
    # A base saved without its LM head calls everything by a shorter name.
    return key == name or name.endswith(f".{key}") or key.endswith(f".{name}")


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
