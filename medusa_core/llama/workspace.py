"""What forwards of a target write to beside weights and cache, told beforehand."""

from __future__ import annotations

import torch

from medusa_core.llama.forward import LlamaForward
from medusa_core.model.exact_attention import CHUNK, attention_bytes
from medusa_core.model.lean import LeanForward
from medusa_core.model.target import Target

# Of libraries, and gaps between what was freed, by whether C computes.
_BUFFERS = {True: 2**20, False: 16 * 2**20}


def forward_workspace(target: Target, rows: int, at_once: int) -> int:
    """Bytes with a cache of ``rows``, of which so many are computed ``at_once`` at most."""
    config, each = target.config, torch.float32.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    native = target.lean if isinstance(target.lean, LlamaForward) else None
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
    window = target.masks.only_window
    read = rows if window is None or target.lean is None else min(rows, window + 2 * CHUNK + at_once)
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    lean = target.lean if isinstance(target.lean, LeanForward) else None
    attention = (
        attention_bytes(groups, heads // groups * at_once, read)
        if lean is None
        else lean.attention_bytes(at_once, read)
    )
    masked = at_once if window is None else read  # keys that the mask is about
    attention += (heads // groups + 1) * at_once * masked * each
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return attention + at_once * (4 * config.hidden_size + 3 * inner) * each
