"""Medusa heads in C. LM heads of their own have 8 bits, since reading them is most of the time.

B rows · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import torch

from medusa_core.drafters._guess_tree import Guesses
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.llama.greedy import Heads
from medusa_core.llama.library import Library
from medusa_core.llama.panels import Panels
from medusa_core.llama.weights import COPY_LIMIT

MOST_ROWS = 4  # with more rows the stacked module in torch is no slower


class NativeHeads:
    """Finds the best guesses of heads on a row or a few."""

    def __init__(self, heads: MedusaHeads, library: Library) -> None:
        """``heads`` are on a CPU. Float32 and an LM head that they share keep every number."""
        weight, last = heads.block_weight.detach(), heads.lm_weight.detach()
        if heads.shares_lm_head:
            panels = [Panels.of(last)] * heads.count
        else:
            panels = [Panels.of(one, int8=last.dtype != torch.float32) for one in last]
        self.last_itemsize = panels[0].numbers.itemsize  # bytes a number of an LM head
        self.in_c = Heads(weight, heads.block_bias.detach(), panels, library)

    @classmethod
    def takes(cls, heads: MedusaHeads) -> bool:
        """Whether C computes such heads, and copies of them are not too large."""
        last = heads.lm_weight
        return (
            type(heads) is MedusaHeads
            and last.dtype in (torch.bfloat16, torch.float32)
            and last.device.type == "cpu"
            and last.nbytes <= COPY_LIMIT
        )

    def best(self, hidden: torch.Tensor, first: int, count: int) -> Guesses:
        """The ``count`` best of the ``first`` heads behind hidden states [B, d]."""
        return Guesses(*self.in_c.best(hidden, first, count))
