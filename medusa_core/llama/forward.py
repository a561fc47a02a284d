"""The forward of a target in C: the ``Forward`` of a Llama-like model on a CPU.

N rows of a forward · d hidden size · H query heads · D head size · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.llama.cache import LlamaCache, buffer_rows, row_bytes
from medusa_core.llama.library import Library
from medusa_core.llama.model import Llama, Results
from medusa_core.llama.weights import Weights
from medusa_core.model.features import BEFORE_NORM
from medusa_core.model.forward import Outputs, Part
from medusa_core.model.masks import LayerMasks
from medusa_core.model.rotary import RotaryTable

_POSITIONS = 256  # positions of the first table of rotations


class LlamaForward:
    """What a ``Target`` runs in the place of transformers' forward."""

    def __init__(self, weights: Weights, masks: LayerMasks, context: int, library: Library) -> None:
        """``context`` is the number of positions that may be asked for."""
        self.weights, self.masks, self.library = weights, masks, library
        self._context = context
        self.rotary = RotaryTable(weights.rotary, torch.device("cpu"), _POSITIONS, context)
        self.model = Llama(weights, self.rotary.prepare(1).cos.shape[-1], library)

    def new_cache(self, slots: int) -> LlamaCache:
        """As ``Forward``."""
        self.rotary.prepare(min(slots, self._context))
        return self.model.new_cache(slots, self.masks.only_window)

    @property
    def copied_bytes(self) -> int:
        """As ``Forward``: the panels."""
        return sum(panels.nbytes for panels in self.weights.products())

    def cache_bytes(self, slots: int) -> int:
        """As ``Forward``: no more than a window's rows where every layer has one."""
        w, rows = self.weights, buffer_rows(slots, self.masks.only_window)
        return len(w.layers) * w.key_heads * row_bytes(w.head_size, w.dtype) * rows

    def __call__(self, parts: Sequence[Part]) -> list[Outputs]:
        """As ``Forward``, in one call of C."""
        counts = [len(part.rows.tokens) for part in parts]
        rows, layers, w = sum(counts), len(self.weights.layers), self.weights
        features = parts[0].rows.features  # the same for all: the runs of a batch have one method
        hidden = torch.empty(rows, w.hidden, dtype=w.dtype)
        # As transformers counts them, the last hidden state is the one after the norm.
        states = {
            layer: hidden if layer in (-1, layers) else torch.empty_like(hidden) for layer in features.layers
        }
        size = w.query_heads * w.head_size
        queries = [hidden.new_empty(rows, size) for _ in range(layers)] if features.queries else []
        kept = [part.rows.kept or count for part, count in zip(parts, counts, strict=True)]
        before = [states.get(layer) for layer in (*range(layers), BEFORE_NORM)] if states else []
        logits = hidden.new_empty(sum(kept), w.vocabulary)
        last = hidden if any(state is hidden for state in states.values()) else None
        tokens = _joined([part.rows.tokens for part in parts])
        positions = _joined([part.rows.depths + part.cache.position for part in parts])
        table = self.rotary.prepare(1 + max(part.cache.position + part.rows.deepest for part in parts))
        self.model.run(tokens, positions, table, parts, Results(logits, kept, last, before, queries))
        wanted = [*(states[layer] for layer in features.layers), *queries]
        split = [state.split(counts) for state in wanted]
        return [(own, [one[number] for one in split]) for number, own in enumerate(logits.split(kept))]


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All tensors, one behind the other; a single one without a copy."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
