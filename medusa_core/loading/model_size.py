"""The sizes of a base, counted without reading their weights.

The model is built on torch's meta device, where numbers have shapes and no values. accelerate's
``compute_module_sizes`` adds buffers to the parameters, and cannot tell linear layers from others.

V vocabulary · d hidden size
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from medusa_core.checkpoints.base import empty_base, reading_base
from medusa_core.checkpoints.files import tensor_headers
from medusa_core.checkpoints.plain_llama import plain_llama_config
from medusa_core.errors import MedusaError
from medusa_core.llama.families import FAMILIES
from medusa_core.model.bare_llama import BareLlama
from medusa_core.model.quantization import Packing, packing_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a base. ``adapted`` is Σ (in + out) over its linear layers: an adapter's size by rank."""

    parameters: int
    embeddings: int  # of them in the embedding and the LM head
    linear: int  # of them in the other linear layers
    largest: int  # of them in the largest of these
    adapted: int
    width: int
    vocabulary: int
    layers: int
    intermediate: int
    key_value_width: int
    context: int | None
    packing: Packing | None  # packing of a checkpoint that was saved quantized
    in_c: bool  # whether its family is one that the C takes

    @property
    def cache_per_row(self) -> int:
        """Numbers that a row keeps: keys and values of all layers."""
        return 2 * self.layers * self.key_value_width


def model_size(folder: Path, code: bool = False) -> ModelSize:
    """Sizes of the model in ``folder``; ``code`` lets Python that lies there run.

    Raises MedusaError when it is not a causal language model.
    """
    if (plain := plain_llama_config(folder)) is not None:
        return _shape_of(BareLlama(plain))
    with reading_base(folder):
        return _shape_of(empty_base(folder, trust_remote_code=code))


def base_bytes(shape: ModelSize, bytes_each: int, packing: Packing | None) -> int:
    """Bytes of a base whose numbers take ``bytes_each``, those of its linear layers less if packed."""
    if packing is None:
        return shape.parameters * bytes_each
    # A model that was saved packed has all of its layers packed. Packing during the load takes the plain
    # linear layers and, in C, the LM head.
    packed = shape.parameters - shape.embeddings if shape.packing else shape.linear
    if packing.is_own:
        packed += shape.vocabulary * shape.width
    return round(packed * packing.bytes_each + (shape.parameters - packed) * bytes_each)


def saved_bytes(folder: Path, bytes_each: int) -> int:
    """Bytes of a model as its files hold it, plain numbers turned into ``bytes_each``; 0 without files."""
    tensors = (tensor for file in folder.glob("model*.safetensors") for tensor in tensor_headers(file))
    return round(sum(tensor.count * (bytes_each if tensor.is_plain else tensor.width) for tensor in tensors))


def is_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear layer, which GPT-2 calls Conv1D."""
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def _shape_of(model: PreTrainedModel | BareLlama) -> ModelSize:
    text = model.config.get_text_config(decoder=True)
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    query_heads = getattr(text, "num_attention_heads", None)
    if head is None or query_heads is None:
        lacks = f"{text.model_type} has no attention heads or no LM head"
        raise MedusaError(f"{lacks}: use a decoder such as Llama or Qwen")
    rows, width = head.weight.shape
    head_dim = getattr(text, "head_dim", None) or width // query_heads
    key_value_width = (getattr(text, "num_key_value_heads", None) or query_heads) * head_dim
    if latent := getattr(text, "kv_lora_rank", None):  # DeepSeek keeps what both are made from
        key_value_width = (latent + text.qk_rope_head_dim) // 2
    linear = [cast("torch.Tensor", layer.weight) for layer in model.modules() if is_linear(layer)]
    inside = [weight.numel() for weight in linear if weight is not head.weight]
    return ModelSize(
        parameters=sum(p.numel() for p in model.parameters()),
        embeddings=sum(table.numel() for table in {embedding.weight, head.weight}),
        linear=sum(inside),
        largest=max(inside, default=0),
        adapted=sum(sum(weight.shape) for weight in linear),
        width=width,
        vocabulary=rows,
        layers=text.num_hidden_layers,
        intermediate=getattr(text, "intermediate_size", None) or 4 * width,
        key_value_width=key_value_width,
        context=getattr(text, "max_position_embeddings", None),
        packing=packing_of(model.config),
        in_c=model.config.model_type in FAMILIES,
    )
