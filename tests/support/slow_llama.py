"""The forward of a Llama-like model, row by row in float32, to compare the C with.

d hidden size · D head size
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from medusa_core.model.masks import SLIDING


def slow_forward(model, kinds, window, tokens, parents):
    """Logits and hidden states [N, d] of the rows ``tokens``, each of which sees its ancestors and itself.

    ``parents`` are a tree's; a text is a tree of one path. ``kinds`` is what each layer attends to.
    """
    paths = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    rows = model.model.embed_tokens.weight[torch.tensor(tokens)]
    for layer, kind in zip(model.model.layers, kinds, strict=True):
        attention = layer.self_attn
        queries, keys, values = projected(layer, rows)
        if getattr(attention, "use_rope", True):
            for row, path in enumerate(paths):
                queries[row] = turned(model, queries[row], len(path) - 1)
                keys[row] = turned(model, keys[row], len(path) - 1)
        seen = [path[-window:] if kind == SLIDING else path for path in paths]
        mixed = [attended(attention, queries[row], keys[own], values[own]) for row, own in enumerate(seen)]
        rows = rows + attention.o_proj(torch.stack(mixed))
        rows = rows + gated(layer.mlp, normed(layer.post_attention_layernorm, rows))
    hidden = normed(model.model.norm, rows)
    return model.lm_head(hidden), hidden


def normed(norm, x):
    return x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight


def projected(layer, rows):
    """Queries, keys and values [N, heads, D], before they are rotated."""
    attention, x = layer.self_attn, normed(layer.input_layernorm, rows)
    size = attention.head_dim
    if hasattr(attention, "qkv_proj"):  # Phi-3
        both, keys = attention.qkv_proj(x).view(len(x), -1, size), attention.config.num_key_value_heads
        return both.split([both.shape[1] - 2 * keys, keys, keys], dim=1)
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, keys, values = (part(x).view(len(x), -1, size) for part in parts)
    if getattr(attention, "q_norm", None) is not None:  # Qwen3
        queries, keys = normed(attention.q_norm, queries), normed(attention.k_norm, keys)
    return queries, keys, values


def turned(model, heads, position):
    """Pairs (i, i + half) of the first numbers of each head, turned by the angles of ``position``."""
    cos, sin = (one[0, 0] for one in model.model.rotary_emb(heads, torch.tensor([[position]])))
    width = len(cos)
    first, second = heads[:, :width].chunk(2, dim=-1)
    return torch.cat([heads[:, :width] * cos + torch.cat([-second, first], -1) * sin, heads[:, width:]], -1)


def attended(attention, query, keys, values):
    """One row: queries [H, D] over the keys and values [S, G, D] that it sees, [H · D]."""
    group = len(query) // keys.shape[1]
    outputs = []
    for head, one in enumerate(query):
        scores = keys[:, head // group] @ one * attention.scaling
        outputs.append(scores.softmax(0) @ values[:, head // group])
    return torch.cat(outputs)


def gated(mlp, x):
    if hasattr(mlp, "gate_up_proj"):  # Phi-3
        gate, up = mlp.gate_up_proj(x).chunk(2, dim=-1)
    else:
        gate, up = mlp.gate_proj(x), mlp.up_proj(x)
    return mlp.down_proj(F.silu(gate) * up)
