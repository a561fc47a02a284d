"""Causal attention for training on a CPU: torch's kernel forward, blocks of queries backward.

Backward, torch's kernel repeats keys for every query head and shares little of the work between cores. Here a
block of queries of all heads that share a key-value head is one matrix, multiplied with the keys up to its
end only; every thread takes blocks of its own, since their products are too small to be divided; and the
probabilities are computed again instead of kept (as FlashAttention does, Dao et al. 2022, section 3.1).

B windows · H query heads · G key-value heads · T tokens · D numbers a head
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "causal_blocks"
MOST_SHARES = 8  # each has sums of its own, as large as all keys and values in float32
BLOCK = 128  # queries; their scores on some hundred keys stay in a core's cache


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
    shared = query.shape[1] // key.shape[1]
    keys, values = (x.unsqueeze(2).expand(-1, -1, shared, -1, -1).flatten(1, 2) for x in (key, value))
    result = F.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scale)
    return result.contiguous()


@torch.library.custom_op("medusa_core::causal_attention_backward", mutates_args=())
def causal_attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query [B, H, T, D], key and value [B, G, T, D]."""
    # In threads beside the caller's torch records operations for a further gradient, unless told otherwise.
    grad, query, key, value = (x.detach() for x in (grad, query, key, value))
    threads = torch.get_num_threads()
    shares = _shares(query, key, min(threads, MOST_SHARES))
    of_queries = torch.empty_like(query)
    # Every block adds to them, so each thread has its own; in float32, else late blocks of a long window are
    # rounded away.
    of_keys, of_values = (key.new_zeros(len(shares), *key.shape, dtype=torch.float32) for _ in range(2))

    backward = _Backward(grad, query, key, value, scale, of_queries)

    def work(number: int) -> None:
        with torch.no_grad():
            for block in shares[number]:
                backward.add(block, of_keys[number], of_values[number])

    if len(shares) == 1:
        work(0)
    else:
        each = (max(1, threads // len(shares)),)
        with ThreadPoolExecutor(len(shares), initializer=torch.set_num_threads, initargs=each) as pool:
            list(pool.map(work, range(len(shares))))
        torch.set_num_threads(threads)  # a thread's number is also that of threads that begin later
    return of_queries, of_keys.sum(0).to(key.dtype), of_values.sum(0).to(value.dtype)


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries ``start`` to ``stop`` of one window, of all heads that share one key-value head."""

    window: int
    heads: slice
    key_head: int
    start: int
    stop: int


def _shares(query: torch.Tensor, key: torch.Tensor, threads: int) -> list[list[_Block]]:
    """The blocks of all windows and heads, divided so that threads have about the same number of scores."""
    windows, heads, tokens = query.shape[:3]
    shared = heads // key.shape[1]
    blocks = [
        _Block(window, slice(head * shared, (head + 1) * shared), head, start, min(start + BLOCK, tokens))
        for start in reversed(range(0, tokens, BLOCK))
        for window in range(windows)
        for head in range(key.shape[1])
    ]
    # Longest first and in turn: every thread gets about as many keys as any other.
    return [blocks[number::threads] for number in range(min(threads, len(blocks)))]


@dataclass(frozen=True, slots=True)
class _Backward:
    """What every block reads, and ``of_queries``, where each writes rows of its own."""

    grad: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float
    of_queries: torch.Tensor

    def add(self, block: _Block, of_keys: torch.Tensor, of_values: torch.Tensor) -> None:
        """Write the gradients of one block's queries; add to those of the keys and values it sees."""
        at = (block.window, block.heads, slice(block.start, block.stop))
        seen = (block.window, block.key_head, slice(0, block.stop))
        keys, width = self.key[seen], self.query.shape[-1]
        rows = (self.query[at] * self.scale).reshape(-1, width)
        grads = self.grad[at].reshape(-1, width)
        share = _probabilities(rows, keys, block)
        of_share = grads @ self.value[seen].T
        of_scores = torch._softmax_backward_data(of_share, share, -1, share.dtype)
        of_values[seen] += share.T @ grads
        of_keys[seen] += of_scores.T @ rows
        self.of_queries[at] = (of_scores @ keys).mul_(self.scale).view_as(self.query[at])


def _probabilities(rows: torch.Tensor, keys: torch.Tensor, block: _Block) -> torch.Tensor:
    """[H/G · queries, keys up to the block's end]; keys behind a row's own token have none."""
    size = block.stop - block.start
    scores = rows @ keys.T
    later = torch.full((size, size), float("-inf"), dtype=scores.dtype).triu(1)
    scores.view(-1, size, block.stop)[..., block.start :] += later
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
