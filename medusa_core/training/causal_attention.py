"""Causal attention for training on a CPU, in blocks of queries.

torch's fused CPU kernel repeats keys for every query head and slows down on long windows; scores of a whole
window take memory by the square of its length. Here a block of queries of all heads that share a key-value
head is one matrix, multiplied with the keys up to its end only, and the backward pass computes the
probabilities again instead of keeping them (as FlashAttention does, Dao et al. 2022, section 3.1).

B windows · H query heads · G key-value heads · T tokens · D numbers a head
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "causal_blocks"
BLOCK = 256  # queries; their scores on some hundred keys stay in a core's cache


def register() -> str:
    """Make it known to transformers; returns the name for ``set_attn_implementation``."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _no_mask)
    return NAME


def _no_mask(*args: Any, **settings: Any) -> None:
    """Every token sees all before it: windows are packed, none is padded."""


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' call: query [B, H, T, D], key and value [B, G, T, D]; returns [B, T, H, D]."""
    # Rotary positions leave float32 behind under autocast.
    query, key = query.to(value.dtype), key.to(value.dtype)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    result = causal_attention(query.contiguous(), key.contiguous(), value.contiguous(), scale)
    return result.transpose(1, 2), None


@torch.library.custom_op("medusa_core::causal_attention", mutates_args=())
def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """softmax(scale · q kᵀ) v over each token and those before it: [B, H, T, D].

    ``query`` [B, H, T, D]; ``key`` and ``value`` [B, G, T, D] with H a multiple of G. A custom operator,
    so that a compiler takes it as one node instead of unrolling the blocks.
    """
    result = torch.empty_like(query)
    for of_query, of_key in _groups(query, key):
        queries, keys, values = query[of_query] * scale, key[of_key], value[of_key]
        for block in _blocks(query.shape[2]):
            rows = _rows(queries, block)
            weighted = _probabilities(rows, keys, block) @ values[: block.stop]
            result[of_query][:, block] = weighted.view(len(queries), -1, query.shape[-1])
    return result


@torch.library.custom_op("medusa_core::causal_attention_backward", mutates_args=())
def causal_attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query [B, H, T, D], key and value [B, G, T, D]."""
    of_queries = torch.empty_like(query)
    # Every block adds to them: in float32, else late blocks of a long window are rounded away.
    of_keys, of_values = (torch.zeros_like(x, dtype=torch.float32) for x in (key, value))
    for of_query, of_key in _groups(query, key):
        queries, keys, values, grads = query[of_query] * scale, key[of_key], value[of_key], grad[of_query]
        for block in _blocks(query.shape[2]):
            seen = slice(0, block.stop)
            rows, grad_rows = _rows(queries, block), _rows(grads, block)
            share = _probabilities(rows, keys, block)
            of_values[of_key][seen] += share.T @ grad_rows
            of_share = grad_rows @ values[seen].T
            of_scores = torch._softmax_backward_data(of_share, share, -1, share.dtype)
            of_keys[of_key][seen] += of_scores.T @ rows
            of_rows = (of_scores @ keys[seen]).mul_(scale)
            of_queries[of_query][:, block] = of_rows.view(len(queries), -1, query.shape[-1])
    return of_queries, of_keys.to(key.dtype), of_values.to(value.dtype)


def _groups(query: torch.Tensor, key: torch.Tensor) -> list[tuple[tuple[int, slice], tuple[int, int]]]:
    """Where the query heads of each window that share a key-value head lie, and that head."""
    shared = query.shape[1] // key.shape[1]
    return [
        ((window, slice(head * shared, (head + 1) * shared)), (window, head))
        for window in range(len(query))
        for head in range(key.shape[1])
    ]


def _blocks(tokens: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, tokens)) for start in range(0, tokens, BLOCK)]


def _rows(heads: torch.Tensor, block: slice) -> torch.Tensor:
    """The block's tokens of all heads as one matrix: [H/G · block, D] of [H/G, T, D]."""
    return heads[:, block].reshape(-1, heads.shape[-1])


def _probabilities(rows: torch.Tensor, keys: torch.Tensor, block: slice) -> torch.Tensor:
    """[H/G · block, keys up to the block's end]; keys behind a row's own token have none."""
    size = block.stop - block.start
    scores = rows @ keys[: block.stop].T
    later = torch.full((size, size), float("-inf"), dtype=scores.dtype).triu(1)
    scores.view(-1, size, block.stop)[..., block] += later
    return torch.softmax(scores, -1)


@causal_attention.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(query)


@causal_attention_backward.register_fake
def _(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    grads = causal_attention_backward(grad.contiguous(), *ctx.saved_tensors, ctx.scale)
    return *grads, None


causal_attention.register_autograd(_backward, setup_context=_keep)
