"""Medusa heads in C, with the LM heads in 8 bits: one call for what is some forty operations of torch.

B rows · K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import ctypes

import torch

from medusa_core.drafters._guess_tree import Guesses
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.drafters.medusa.packed import Int8Linear
from medusa_core.target.native import structures
from medusa_core.target.native.greedy import HeadsInC
from medusa_core.target.native.library import Library
from medusa_core.target.products import PACK_LIMIT

_FEATURES, _TOKENS = 32, 16  # that are computed at once


class NativeHeads:
    """The best guesses of heads on a row or a few."""

    last_itemsize = torch.int8.itemsize  # bytes a number of an LM head

    def __init__(self, heads: MedusaHeads, library: Library) -> None:
        """``heads`` have blocks and LM heads of their own, in bfloat16 on a CPU."""
        self._library = library
        self._weights = heads.block_weight.detach(), heads.block_bias.detach()
        self._last = [Int8Linear(one) for one in heads.lm_weight.detach()]
        self._vocabulary, hidden = heads.lm_weight.shape[1:]
        pointers = ctypes.c_void_p * heads.count
        self._heads = structures.Heads(
            heads=heads.count,
            blocks=heads.layers,
            hidden=hidden,
            vocabulary=self._vocabulary,
            tiles=library.tiles,
            weight=self._weights[0].data_ptr(),
            bias=self._weights[1].data_ptr(),
            last=pointers(*(one.weight.data_ptr() for one in self._last)),
            scale=pointers(*(one.scales.data_ptr() for one in self._last)),
        )

    @classmethod
    def takes(cls, heads: MedusaHeads) -> bool:
        """Whether these are heads that the functions in C compute: with an LM head each, in bfloat16."""
        last = heads.lm_weight
        return (
            type(heads) is MedusaHeads
            and not heads.shares_lm_head
            and last.dtype == torch.bfloat16
            and last.device.type == "cpu"
            and last.nbytes <= PACK_LIMIT
            and last.shape[1] % _TOKENS == 0
            and last.shape[2] % _FEATURES == 0
        )

    @property
    def in_c(self) -> HeadsInC:
        """As a whole step in C asks them about one text."""
        return HeadsInC(self._heads, self._library.functions.heads_bytes(self._heads, 1))

    def best(self, hidden: torch.Tensor, first: int, count: int) -> Guesses:
        """The ``count`` best of the ``first`` heads behind hidden states [B, d]."""
        rows, given = len(hidden), hidden.contiguous()
        tokens = torch.empty(first, rows, count, dtype=torch.long)
        logp = torch.empty(first, rows, count)
        functions = self._library.functions
        work = torch.empty(functions.heads_bytes(self._heads, rows), dtype=torch.uint8)
        late = functions.run_heads(
            self._heads,
            first,
            given.data_ptr(),
            rows,
            count,
            tokens.data_ptr(),
            logp.data_ptr(),
            work.data_ptr(),
            self._library.threads,
        )
        if late:
            self._library.was_late()
        return Guesses(tokens, logp)
