"""The sizes of a base and its heads, counted without reading their weights.

The model is built on torch's meta device, where numbers have shapes and no values.

V vocabulary · d hidden size
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from medusa_core.checkpoints.base import empty_base, reading_base
from medusa_core.checkpoints.files import (
    FULL_PREFIX,
    Layout,
    file_fault,
    layout_of,
    pickle_fault,
    read_config,
)
from medusa_core.checkpoints.names import HEADS_NAME
from medusa_core.errors import MedusaError
from medusa_core.target.quantization import Packing, packing_of

_PUBLISHED_HEADS = 5  # where their config does not say how many
_FLOATS = ("F64", "F32", "F16", "BF16")  # as safetensors names what is turned into the model's dtype


@dataclass(frozen=True)
class Shape:
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
    packing: Packing | None  # of a checkpoint that was saved quantised


def model_shape(folder: Path, code: bool = False) -> Shape:
    """Sizes of the model in ``folder``; ``code`` lets Python that lies there run.

    Raises MedusaError when it is no causal language model.
    """
    with reading_base(folder):
        return _shape_of(empty_base(folder, trust_remote_code=code))


def base_bytes(shape: Shape, bytes_each: int, packing: Packing | None) -> int:
    """Bytes of a base whose numbers take ``bytes_each``, those of its linear layers less if packed."""
    if packing is None:
        return shape.parameters * bytes_each
    # Whoever saves a model packs all of its layers; packed while they load are the plainly linear ones.
    packed = shape.parameters - shape.embeddings if shape.packing else shape.linear
    return round(packed * packing.bytes_each + (shape.parameters - packed) * bytes_each)


def saved_bytes(folder: Path, bytes_each: int) -> int:
    """Bytes of a model as its files hold it, plain numbers turned into ``bytes_each``; 0 without files."""
    tensors = (tensor for file in folder.glob("model*.safetensors") for tensor in _tensors_in(file))
    return round(sum(tensor.count * (bytes_each if tensor.is_plain else tensor.width) for tensor in tensors))


def head_numbers(folder: Path, shape: Shape) -> int:
    """Numbers in the heads of a folder: by their files where those are here, else by what their config says.

    Raises MedusaError when a file is damaged.
    """
    layout = layout_of(folder)
    pickled = folder / f"{HEADS_NAME}.pt"
    if layout is Layout.HEADS and pickled.is_file():
        return _numbers_pickled(pickled)
    prefix = FULL_PREFIX if layout is Layout.FULL else ""
    names = f"{HEADS_NAME}*" if layout is Layout.HEADS else "*"
    files = folder.glob(f"{names}.safetensors") if layout else ()
    tensors = (tensor for file in files for tensor in _tensors_in(file))
    counted = sum(tensor.count for tensor in tensors if tensor.name.startswith(prefix))
    return counted or _numbers_by_config(read_config(folder), shape)


def _numbers_by_config(config: dict[str, Any], shape: Shape) -> int:
    heads = config.get("medusa_num_heads") or config.get("num_heads") or _PUBLISHED_HEADS
    layers = config.get("medusa_num_layers") or 1
    own = 0 if str(config.get("version")) == "2" else shape.vocabulary * shape.width
    return heads * (layers * (shape.width**2 + shape.width) + own)


def _numbers_pickled(file: Path) -> int:
    try:
        # Shapes alone: the numbers stay on the disk.
        state = torch.load(file, map_location="meta", weights_only=True, mmap=True)
        return sum(tensor.numel() for tensor in state.values())
    except Exception as error:  # a damaged pickle makes its reader stumble over anything
        raise MedusaError(f"cannot read the heads in {file.parent}: {pickle_fault(file, error)}") from error


@dataclass(frozen=True)
class _Saved:
    """A tensor of a file: how many numbers of which kind it has."""

    name: str
    count: int
    kind: str

    @property
    def is_plain(self) -> bool:
        return self.kind in _FLOATS

    @property
    def width(self) -> float:
        """Bytes of a number, by the digits that safetensors' names of kinds have."""
        digits = re.search(r"\d+", self.kind)
        return int(digits[0]) / 8 if digits else 1


def _tensors_in(file: Path) -> list[_Saved]:
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return [_Saved(name, prod(part.get_shape()), part.get_dtype()) for name, part in slices.items()]
    except (SafetensorError, OSError) as error:
        raise MedusaError(f"cannot read {file.parent}: {file_fault(file, error)}") from error


def _shape_of(model: torch.nn.Module) -> Shape:
    text = model.config.get_text_config(decoder=True)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    query_heads = getattr(text, "num_attention_heads", None)
    if head is None or query_heads is None:
        raise MedusaError(
            f"{text.model_type} has no attention heads or no LM head: use a decoder such as Llama or Qwen"
        )
    rows, width = head.weight.shape
    head_dim = getattr(text, "head_dim", None) or width // query_heads
    key_value_width = (getattr(text, "num_key_value_heads", None) or query_heads) * head_dim
    if latent := getattr(text, "kv_lora_rank", None):  # DeepSeek keeps what both are made from
        key_value_width = (latent + text.qk_rope_head_dim) // 2
    linear = [module.weight for module in model.modules() if _is_linear(module)]
    inside = [weight.numel() for weight in linear if weight is not head.weight]
    return Shape(
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
    )


def _is_linear(module: torch.nn.Module) -> bool:
    # GPT-2 calls its linear layers Conv1D.
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
