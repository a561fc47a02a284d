"""The lean forward in C, for models in bfloat16 on a CPU that has instructions for it.

A forward of one row through a small model is some two hundred operations of torch, which together take as
long as reading the weights twice. In C it is one call. It computes what ``lean`` does on the same weights;
``native/model.h`` says how. Where attention runs on AMX the cache is one in bfloat16, and all forwards run in
C; elsewhere it is that of ``lean``, through which forwards of more rows go than a tree has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from medusa_core.errors import MedusaError
from medusa_core.target.exact_attention import MOST_ROWS
from medusa_core.target.features import BEFORE_NORM
from medusa_core.target.forward import Outputs, Part
from medusa_core.target.lean import LeanForward, positions_of
from medusa_core.target.lean_cache import LeanCache
from medusa_core.target.lean_weights import LeanWeights
from medusa_core.target.masks import LayerMasks
from medusa_core.target.native.cache import NativeCache, native_cache_bytes
from medusa_core.target.native.computation import Attending, Computation, NotNativeError, Results
from medusa_core.target.native.greedy import GreedySteps, Guessing
from medusa_core.target.native.library import Library
from medusa_core.trees.token_tree import TokenTree


class NativeForward(LeanForward):
    """As ``LeanForward``, with forwards of up to ``MOST_ROWS`` rows in C."""

    def __init__(self, weights: LeanWeights, masks: LayerMasks, context: int, library: Library) -> None:
        """Raises NotNativeError for a model that it does not compute."""
        if masks.only_window is not None or any(layer.slides for layer in weights.layers):
            raise NotNativeError("its layers have windows")
        super().__init__(weights, masks, context)
        self.library = library
        self._computation = Computation(weights, self._rotations.cos.shape[-1], library)

    def first_layers(self, count: int, context: int) -> NativeForward:
        """As ``LeanForward``."""
        weights = replace(self.weights, layers=self.weights.layers[:count])
        return NativeForward(weights, self.masks, context, self.library)

    def new_cache(self, slots: int) -> LeanCache:
        """As ``LeanForward``."""
        self.prepare_positions(slots)
        return self._computation.new_cache(slots)

    def cache_bytes(self, slots: int) -> int:
        """As ``LeanForward``."""
        w = self.weights
        return len(w.layers) * w.key_heads * native_cache_bytes(w.head_size, slots, self.library)

    def attention_bytes(self, rows: int, keys: int) -> int:
        """As ``LeanForward``."""
        if not self._computation.tiled:
            return super().attention_bytes(rows, keys)
        return self._computation.attention_bytes(rows, keys)

    def work_bytes(self, rows: int) -> int:
        """What the inside of a forward of so many rows is written to."""
        return self._computation.work_bytes(rows)

    def greedy_steps(self, cache: NativeCache, shape: TokenTree, guessing: Guessing) -> GreedySteps:
        """Steps of trees of up to ``MOST_ROWS`` nodes over a cache, until its text outgrows the rotations."""
        table = self._table_up_to(cache.position + max(shape.depths))
        return GreedySteps(self._computation, table, cache, shape, guessing)

    def _run(self, parts: Sequence[Part]) -> list[Outputs]:
        counts = [len(part.rows.tokens) for part in parts]
        rows, layers = sum(counts), len(self.weights.layers)
        if rows > MOST_ROWS and not self._computation.tiled:
            return super()._run(parts)
        embedding, features = self.weights.embedding, parts[0].rows.features  # the same for all
        hidden = embedding.new_empty(rows, embedding.shape[1])
        # As transformers counts them, the last hidden state is the one after the norm.
        states = {
            layer: hidden if layer in (-1, layers) else torch.empty_like(hidden) for layer in features.layers
        }
        size = self.weights.query_heads * self.weights.head_size
        queries = [embedding.new_empty(rows, size) for _ in range(layers)] if features.queries else []
        kept = [part.rows.kept or count for part, count in zip(parts, counts, strict=True)]
        before = [states.get(layer) for layer in (*range(layers), BEFORE_NORM)] if states else []
        logits = embedding.new_empty(sum(kept), len(embedding))
        results = Results(logits, kept, hidden, before, queries)
        if rows <= MOST_ROWS:
            attending = [_attending(part, 0, count) for part, count in zip(parts, counts, strict=True)]
            tokens = (
                parts[0].rows.tokens if len(parts) == 1 else torch.cat([part.rows.tokens for part in parts])
            )
            self._computation.run(tokens, positions_of(parts), self._table_for(parts), attending, results)
        else:
            self._run_in_turns(parts[0], results)
        wanted = [*(states[layer] for layer in features.layers), *queries]
        if len(parts) == 1:
            return [(logits, wanted)]
        split = [state.split(counts) for state in wanted]
        return [(own, [one[number] for one in split]) for number, own in enumerate(logits.split(kept))]

    def _run_in_turns(self, part: Part, results: Results) -> None:
        """``MOST_ROWS`` rows of a part at a time, behind each other."""
        count, positions, table = len(part.rows.tokens), positions_of([part]), self._table_for([part])
        for start in range(0, count, MOST_ROWS):
            end = min(start + MOST_ROWS, count)
            self._computation.run(
                part.rows.tokens[start:end],
                positions[start:end],
                table,
                [_attending(part, start, end)],
                results.of_rows(start, end, count),
            )


def _attending(part: Part, start: int, end: int) -> Attending:
    """Rows ``start`` to ``end`` of a part, behind the others."""
    if not isinstance(part.cache, NativeCache):
        raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
    seen = part.rows.allowed[start:end, :end].contiguous()
    return Attending(end - start, part.cache, seen, (part.rows.depths - start)[start:end].contiguous(), start)
