"""Heads from tensors that were read and back to files, and how many numbers are in those of a folder.

V vocabulary · d hidden size
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.checkpoints.files import (
    FULL_PREFIX,
    Layout,
    layout_of,
    read_config,
    read_pickled,
    tensor_headers,
)
from medusa_core.checkpoints.heads import heads_for_base, write_heads
from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.checkpoints.names import HEADS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.medusa import HEADS
from medusa_core.drafters.medusa.heads import MedusaHeads, TruncatedHeads

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize


def build_heads(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> MedusaHeads:
    """Heads for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ, or when a number is NaN or infinite.
    """
    placed = heads_for_base(tensors, lm_head, source)
    last = lm_head.detach() if placed.lm_weight is None else placed.lm_weight
    blocks = placed.block_weight, placed.block_bias
    heads = (
        MedusaHeads(*blocks, last)
        if placed.token_map is None
        else TruncatedHeads(*blocks, last, placed.token_map, len(lm_head))
    )
    return heads.requires_grad_(False).eval()


def save_heads(heads: MedusaHeads, folder: Path, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write heads in format v1 (v2 when they share the LM head) as safetensors of at most 9 MB each.

    Raises MedusaError for heads of a shortened vocabulary, which these formats cannot hold.
    """
    weight, bias = (block.detach().to("cpu", dtype) for block in (heads.block_weight, heads.block_bias))
    last = None if heads.shares_lm_head else heads.lm_weight.detach().to("cpu", dtype)
    token_map = heads.token_map.cpu() if isinstance(heads, TruncatedHeads) else None
    write_heads(HeadTensors(weight, bias, last, token_map), folder, base)


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory heads take beside ``base``: by their files where those are here, else by their config.

    Raises MedusaError when a file is damaged.
    """
    layout = layout_of(folder)
    pickled = folder / f"{HEADS_NAME}.pt"
    if layout is Layout.HEADS and pickled.is_file():
        # Shapes alone: the numbers stay on the disk.
        return DraftSize(sum(t.numel() for t in read_pickled(pickled, device="meta", mapped=True).values()))
    prefix = FULL_PREFIX if layout is Layout.FULL else ""
    names = f"{HEADS_NAME}*" if layout is Layout.HEADS else "*"
    files = folder.glob(f"{names}.safetensors") if layout else ()
    tensors = (tensor for file in files for tensor in tensor_headers(file))
    counted = sum(tensor.count for tensor in tensors if tensor.name.startswith(prefix))
    return DraftSize(counted or _numbers_by_config(read_config(folder), base))


def _numbers_by_config(config: dict[str, Any], base: ModelSize) -> int:
    heads = config.get("medusa_num_heads") or config.get("num_heads") or HEADS
    layers = config.get("medusa_num_layers") or 1
    own = 0 if str(config.get("version")) == "2" else base.vocabulary * base.width
    return heads * (layers * (base.width**2 + base.width) + own)
