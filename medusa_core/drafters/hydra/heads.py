"""The Hydra heads: each guesses the next token from the hidden state and the path drafted so far.

Head k (from 0) reads ``x = [h, E(t_0), …, E(t_k)]``, where h is the hidden state of the last accepted token,
t_0 the root and E the target's embedding; its first block is ``R x + SiLU(W x)``, which brings (k + 2)·d
down to d, further ones are ``x + SiLU(W x)``, and a linear layer gives the logits of the token after t_k.
Hydra paper §3.

K heads · L layers · V vocabulary · d hidden size · P paths
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.hydra.prefix import PrefixLayer


class HydraHead(nn.Module):
    """One head: a first block that narrows, further blocks, and the logits."""

    def __init__(self, inputs: int, width: int, rows: int, layers: int) -> None:
        """``layers`` blocks, of which the first narrows ``inputs`` numbers to ``width``; ``rows`` is V."""
        super().__init__()
        self.linear, self.residual = nn.Linear(inputs, width), nn.Linear(inputs, width)
        self.further = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.last = nn.Linear(width, rows)

    @classmethod
    def fresh(cls, lm_head: torch.Tensor, number: int, layers: int) -> HydraHead:
        """Head ``number`` from 0, whose logits are at first those of the LM head [V, d].

        Further blocks are one, as in the public code, which repeats it with the same weights.
        """
        rows, width = lm_head.shape
        head = cls((number + 2) * width, width, rows, layers)
        for layer in range(1, layers - 1):
            head.further[layer] = head.further[0]
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.zero_()
            head.residual.weight[:, :width] = torch.eye(width)
            head.last.weight.copy_(lm_head)
        return head.to(lm_head)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Output of the blocks: [..., (k + 2)·d] → [..., d]."""
        x = self.residual(x) + F.silu(self.linear(x))
        for block in self.further:
            x = x + F.silu(block(x))
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits: [..., (k + 2)·d] → [..., V]."""
        return self.last(self.features(x))


class HydraHeads(nn.Module):
    """K heads, and for ``prefix-mlp`` the decoder layer whose output stands for the hidden state."""

    def __init__(self, heads: Sequence[HydraHead], prefix: PrefixLayer | None = None) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.prefix = prefix

    @classmethod
    def fresh(cls, lm_head: torch.Tensor, heads: int, layers: int, prefix: Any = None) -> HydraHeads:
        """Heads that at first predict as the LM head [V, d] does; ``prefix``: the base's config or None."""
        made = [HydraHead.fresh(lm_head, number, layers) for number in range(heads)]
        return cls(made, None if prefix is None else PrefixLayer.fresh(prefix, lm_head))

    @property
    def count(self) -> int:
        """K."""
        return len(self.heads)

    @property
    def layers(self) -> int:
        """L."""
        return len(self.head(0).further) + 1

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.head(0).last.out_features

    @property
    def width(self) -> int:
        """d."""
        return self.head(0).linear.out_features

    def forward(self, head: int, paths: torch.Tensor) -> torch.Tensor:
        """Logits of head number ``head`` from 0 after every path: [P, (head + 2)·d] → [P, V]."""
        return self.heads[head](paths)

    def inputs(self, head: int, states: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """The inputs of head number ``head`` over a whole text, whose own tokens are the paths.

        ``states`` [..., T, d] are hidden states, or the prefix layer's output, and ``embedded`` the tokens'
        embeddings. Row t of [..., T − head − 2, (head + 2)·d] leads to token t + head + 2, the last to T − 1.
        """
        rows = max(0, states.shape[-2] - head - 2)
        path = [embedded[..., after : after + rows, :] for after in range(1, head + 2)]
        return torch.cat([states[..., :rows, :], *path], dim=-1)

    def head(self, number: int) -> HydraHead:
        """Head ``number`` from 0."""
        return cast("HydraHead", self.heads[number])
