"""Medusa heads in C, in one call: ``heads.c``.

B rows · K heads · L blocks · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from medusa_core.llama import structures
from medusa_core.llama.library import Library
from medusa_core.llama.panels import Panels, kind_of


class Best(NamedTuple):
    """The likeliest tokens of each head and row, the best first."""

    tokens: torch.Tensor  # [heads, B, count]
    logp: torch.Tensor  # of these


class Heads:
    """Blocks and LM heads in panels."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor, last: Sequence[Panels], library: Library
    ) -> None:
        """``weight`` [K, L, d, d] and ``bias`` [K, L, d] of the blocks, and the LM head of each head."""
        heads, blocks, hidden, _ = weight.shape
        self.library, self.dtype = library, weight.dtype
        pairs = zip(weight.flatten(0, 1), bias.flatten(0, 1), strict=True)
        self._panels = [*(Panels.of(*pair) for pair in pairs), *last]  # C holds their addresses
        linears = [panels.structure for panels in self._panels]
        self.structure = structures.Heads(
            heads=heads,
            blocks=blocks,
            hidden=hidden,
            vocabulary=last[0].outputs,
            kind=kind_of(weight.dtype),
            block=(structures.Linear * (heads * blocks))(*linears[: heads * blocks]),
            last=(structures.Linear * heads)(*linears[heads * blocks :]),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the weights; LM heads that are one count once."""
        return sum({id(panels): panels.nbytes for panels in self._panels}.values())

    def work_bytes(self, asked: int, rows: int) -> int:
        """What a call works in."""
        return int(self.library.functions.heads_bytes(self.structure, asked, rows))

    def best(self, hidden: torch.Tensor, asked: int, count: int) -> Best:
        """The ``count`` best of the first ``asked`` heads after hidden states [B, d]."""
        rows, given = len(hidden), hidden.contiguous()
        found = Best(torch.empty(asked, rows, count, dtype=torch.long), torch.empty(asked, rows, count))
        work = torch.empty(self.work_bytes(asked, rows), dtype=torch.uint8)
        addresses = [one.data_ptr() for one in (*found, work)]
        threads = self.library.threads
        if self.library.functions.run_heads(
            self.structure, asked, given.data_ptr(), rows, count, *addresses, threads
        ):
            self.library.was_late()
        return found
