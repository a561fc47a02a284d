"""What forwards of a target write to beside weights and cache, estimated beforehand."""

from __future__ import annotations

import torch

from medusa_core.llama.forward import LlamaForward
from medusa_core.model.target import Target

# Of libraries, and gaps between what was freed, by whether C computes.
_BUFFERS = {True: 2**20, False: 16 * 2**20}
_SCORES = 16 * 2**20  # bytes of scores that torch's attention holds at once


def forward_workspace(target: Target, rows: int, at_once: int) -> int:
    """Bytes with a cache of ``rows``, of which so many are computed ``at_once`` at most."""
    config, each = target.config, torch.float32.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    native = target.forward if isinstance(target.forward, LlamaForward) else None
    inside = (
        native.work_bytes(at_once, rows) if native is not None else _inside_in_torch(target, rows, at_once)
    )
    # cos and sin, made before the cache is: what that takes for a moment is free again by then
    rotations = 2 * min(target.context, rows) * head * each
    features = 2 * at_once * config.hidden_size * target.dtype.itemsize
    return inside + features + rotations + _BUFFERS[native is not None]


def _inside_in_torch(target: Target, rows: int, at_once: int) -> int:
    """Attention, its mask and the MLP of a layer, as torch writes them."""
    config, each = target.config, torch.float32.itemsize
    scores = min(config.num_attention_heads * at_once * rows * each, _SCORES)
    masks = 2 * at_once * rows * each  # a mask of booleans and one of numbers
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return scores + masks + at_once * (4 * config.hidden_size + 3 * inner) * each
