"""The LM head of a base, read from its files without the rest of it: to start heads from and to compare with.

V vocabulary · d hidden size
"""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.base import check_weights, empty_base, load_base
from medusa_core.checkpoints.files import read_tensors
from medusa_core.checkpoints.names import WEIGHTS_NAME
from medusa_core.errors import MedusaError


def read_lm_head(folder: Path) -> torch.Tensor:
    """The LM head [V, d] of the model in ``folder``, in its file's dtype; the embedding if they are tied.

    Raises MedusaError when the folder holds no model whose weights can be read.
    """
    model = empty_base(folder)
    check_weights(folder)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = model.config.get_text_config(decoder=True).tie_word_embeddings
    for module in (head, embedding) if tied else (head,):
        name = next(name for name, other in model.named_modules() if other is module) + ".weight"

        def same(key: str, name: str = name) -> bool:
            # A base saved without its LM head calls everything by a shorter name.
            return key == name or name.endswith(f".{key}") or key.endswith(f".{name}")

        for tensor in read_tensors(folder, WEIGHTS_NAME, same, "LM head").values():
            if tensor.shape == head.weight.shape and tensor.is_floating_point():
                return tensor
    # The slow way, for checkpoints whose names transformers translates.
    weight = load_base(folder, dtype="auto").get_output_embeddings().weight.detach()
    if not weight.is_floating_point():
        lacks = f"the weights in {folder} hold no LM head that can be read"
        raise MedusaError(f"{lacks}: give a base that is not quantized")
    return weight
