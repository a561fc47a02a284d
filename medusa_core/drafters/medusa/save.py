"""Heads in memory to tensors and into a folder."""

from __future__ import annotations

from pathlib import Path

import torch

from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.checkpoints.write import write_heads
from medusa_core.drafters.medusa.build import TruncatedHeads
from medusa_core.drafters.medusa.heads import MedusaHeads


def save_heads(heads: MedusaHeads, folder: Path, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write heads in format v1 (v2 when they share the LM head) as safetensors of at most 9 MB each.

    Raises MedusaError for heads of a shortened vocabulary, which these formats cannot hold.
    """
    write_heads(tensors_of(heads, dtype), folder, base)


def tensors_of(heads: MedusaHeads, dtype: torch.dtype | None = None) -> HeadTensors:
    """The tensors of heads in memory, in ``dtype`` or their own."""
    last = None if heads.shares_lm_head else heads.lm_weight.detach().to("cpu", dtype)
    token_map = heads.token_map.cpu() if isinstance(heads, TruncatedHeads) else None
    return HeadTensors(
        heads.block_weight.detach().to("cpu", dtype),
        heads.block_bias.detach().to("cpu", dtype),
        last,
        token_map,
    )
