"""Medusa heads in C. LM heads of their own have 8 bits, since reading them is most of the time."""

from __future__ import annotations

import torch

from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.llama.greedy import Heads
from medusa_core.llama.library import Library
from medusa_core.llama.panels import Panels
from medusa_core.llama.weights import COPY_LIMIT

MOST_ROWS = 4  # with more rows the stacked module in torch is no slower


def native_heads(heads: MedusaHeads, library: Library) -> Heads | None:
    """The heads in C; None where C does not compute them, and where copies of them would be too large.

    In float32, and with an LM head that they share, every number is kept.
    """
    weight, last = heads.block_weight.detach(), heads.lm_weight.detach()
    computed = type(heads) is MedusaHeads and last.dtype in (torch.bfloat16, torch.float32)
    if not computed or last.device.type != "cpu" or last.nbytes > COPY_LIMIT:
        return None
    if heads.shares_lm_head:
        panels = [Panels.of(last)] * heads.count
    else:
        panels = [Panels.of(one, int8=last.dtype != torch.float32) for one in last]
    return Heads(weight, heads.block_bias.detach(), panels, library)
