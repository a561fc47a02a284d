"""TokenSwift's heads: each goes on from the hidden state of the one before it, without seeing a token.

h_(i+1) = h_i + W_i · RMSNorm(h_i), where h_0 is the target's hidden state before its final norm; the logits
of head i are LM head(RMSNorm'(h_(i+1))), by the target's own LM head. At position t, head i (from 0) guesses
token t + i + 2, the target itself token t + 1. Paper §2.2.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class TokenSwiftHeads(nn.Module):
    """K heads in a chain, on an LM head that is the target's: used, but neither trained nor saved."""

    lm_head: torch.Tensor

    def __init__(
        self,
        linear: torch.Tensor,
        before: torch.Tensor,
        after: torch.Tensor,
        lm_head: torch.Tensor,
        epsilon: float,
    ) -> None:
        """linear [K, d, d]; norms before it and before the LM head [K, d] each; lm_head [V, d]."""
        super().__init__()
        self.linear = nn.Parameter(linear)
        self.before = nn.Parameter(before)
        self.after = nn.Parameter(after)
        self.register_buffer("lm_head", lm_head, persistent=False)
        self.epsilon = epsilon

    @classmethod
    def fresh(
        cls, lm_head: torch.Tensor, final_norm: torch.Tensor, heads: int, epsilon: float
    ) -> TokenSwiftHeads:
        """Heads that predict at first what the target predicts, whose final norm has the weights [d]."""
        width = lm_head.shape[1]
        norm = final_norm.detach().to(lm_head)
        return cls(
            lm_head.new_zeros(heads, width, width),
            lm_head.new_ones(heads, width),
            norm.expand(heads, -1).clone(),
            lm_head.detach(),
            epsilon,
        )

    @property
    def count(self) -> int:
        """K."""
        return len(self.linear)

    def states(self, hidden: torch.Tensor, first: int | None = None) -> list[torch.Tensor]:
        """h_1 to h_K of hidden states [..., d], or of the ``first`` heads."""
        states = []
        for head in range(self.count if first is None else first):
            hidden = hidden + F.linear(self._norm(hidden, self.before[head]), self.linear[head])
            states.append(hidden)
        return states

    def logits(self, head: int, state: torch.Tensor) -> torch.Tensor:
        """Logits of head ``head`` from 0 for its own state: [..., d] → [..., V]."""
        return F.linear(self._norm(state, self.after[head]), self.lm_head)

    def forward(self, hidden: torch.Tensor, first: int | None = None) -> torch.Tensor:
        """Logits of all heads, or of the ``first``: [..., d] → [K, ..., V]."""
        states = self.states(hidden, first)
        if not states:
            return hidden.new_empty(0, *hidden.shape[:-1], len(self.lm_head))
        normed = [self._norm(state, self.after[head]) for head, state in enumerate(states)]
        return F.linear(torch.stack(normed), self.lm_head)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        # As Llama's norm: in float32, rounded before the weight is applied.
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.epsilon)
        return weight * (wide * scale).to(x.dtype)
