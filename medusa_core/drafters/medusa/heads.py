"""The Medusa heads: K small networks that guess further tokens from one hidden state.

``head_k = ResBlock × L, then Linear(d → V)`` with ``ResBlock(x) = x + SiLU(W x + b)``; head k at position t
guesses token t + k + 1, the base LM head token t + 1. Weights of all heads are stacked, so that one batched
product a layer serves all of them. Paper §2.1.1.

K heads · L layers · V vocabulary · d hidden size
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class MedusaHeads(nn.Module):
    """K heads of L residual blocks and a linear layer each, or of blocks in front of a shared LM head."""

    def __init__(
        self,
        block_weight: torch.Tensor,
        block_bias: torch.Tensor,
        lm_weight: torch.Tensor,
    ) -> None:
        """block_weight [K, L, d, d], block_bias [K, L, d], lm_weight [K, V, d] or shared [V, d]."""
        super().__init__()
        self.block_weight = nn.Parameter(block_weight)
        self.block_bias = nn.Parameter(block_bias)
        self.shares_lm_head = lm_weight.ndim == 2
        if self.shares_lm_head:
            # The base model's matrix: used, but neither trained nor saved with the heads.
            self.register_buffer("lm_weight", lm_weight, persistent=False)
        else:
            self.lm_weight = nn.Parameter(lm_weight)

    @classmethod
    def fresh(cls, lm_head: torch.Tensor, heads: int, layers: int, *, shared: bool = False) -> MedusaHeads:
        """Heads that predict what the LM head [V, d] predicts, with copies of it or on it itself."""
        weight, bias, last = fresh_tensors(lm_head.detach(), heads, layers)
        if shared:
            return cls(weight, bias, lm_head.detach())
        return cls(weight, bias, last.clone(memory_format=torch.contiguous_format))

    @property
    def count(self) -> int:
        """K."""
        return self.block_weight.shape[0]

    @property
    def layers(self) -> int:
        """L."""
        return self.block_weight.shape[1]

    def features(self, hidden: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """Output of the residual blocks of the ``first`` heads, or of all: [T, d] → [K, T, d]."""
        heads = self.count if first is None else first
        x = hidden.expand(heads, -1, -1)
        for layer in range(self.layers):
            weight, bias = self.block_weight[:heads, layer], self.block_bias[:heads, layer]
            x = x + F.silu(torch.baddbmm(bias[:, None], x, weight.transpose(1, 2)))
        return x

    def forward(self, hidden: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """Logits of the ``first`` heads, or of all: [T, d] → [K, T, V]."""
        x = self.features(hidden, first)
        if self.shares_lm_head:
            return F.linear(x, self.lm_weight)
        return torch.bmm(x, self.lm_weight[: len(x)].transpose(1, 2))


class TruncatedHeads(MedusaHeads):
    """Heads that know a part of the vocabulary, as vLLM's ``token_map`` names it: the rest is impossible."""

    token_map: torch.Tensor

    def __init__(
        self,
        block_weight: torch.Tensor,
        block_bias: torch.Tensor,
        lm_weight: torch.Tensor,
        token_map: torch.Tensor,
        vocabulary: int,
    ) -> None:
        """``lm_weight`` has V' rows, ``token_map`` [V'] their tokens, ``vocabulary`` is V."""
        super().__init__(block_weight, block_bias, lm_weight)
        self.register_buffer("token_map", token_map, persistent=False)
        self.vocabulary = vocabulary

    def forward(self, hidden: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """Logits of the ``first`` heads, or of all, −∞ for tokens they do not know: [T, d] → [K, T, V]."""
        known = super().forward(hidden, first)
        logits = known.new_full((*known.shape[:-1], self.vocabulary), -torch.inf)
        return logits.index_copy(-1, self.token_map, known)


def fresh_tensors(
    lm_head: torch.Tensor, heads: int, layers: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights and biases of zero blocks, and the LM head [V, d] for each head, as a view without a copy."""
    weight = lm_head.new_zeros(heads, layers, lm_head.shape[1], lm_head.shape[1])
    return weight, weight[..., 0].clone(), lm_head.expand(heads, -1, -1)
