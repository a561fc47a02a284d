"""The forward of a Llama-like model for a graph, with the mathematics of ``lean``.

N rows, padded · B slots of a bucket · d hidden size · H query heads · G key-value heads · D head size
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from medusa_core.model.features import BEFORE_NORM
from medusa_core.model.forward import Outputs, Rows
from medusa_core.model.lean import mlp
from medusa_core.model.lean_weights import Layer, LeanWeights
from medusa_core.model.masks import FULL, SLIDING, LayerMasks
from medusa_core.model.rotary import Rotations, rotated, rotations
from medusa_core.model.static_cache import Buffers, LayerShape
from medusa_core.model.static_forward import Record, StaticForward, not_recorded


class StaticLean(StaticForward):
    """As ``StaticForward``, by our own mathematics."""

    def __init__(
        self, weights: LeanWeights, masks: LayerMasks, context: int, record: Record = not_recorded
    ) -> None:
        """``context`` is the number of positions that may be asked for."""
        self.weights = weights
        self._dtype = weights.embedding.dtype
        each = weights.key_heads, weights.head_size
        shapes = [LayerShape(each, each, self._dtype)] * len(weights.layers)
        super().__init__(shapes, masks, weights.embedding.device, record)
        # A padded row stands where the root stands, a node never beyond the context.
        self._rotations = rotations(weights.rotary, context, self._device)

    def compute(
        self, rows: Rows, length: torch.Tensor, position: torch.Tensor, buffers: Buffers, bucket: int
    ) -> Outputs:
        """As ``StaticForward``."""
        w = self.weights
        by = self._rotations.at(rows.depths + position)
        slots = torch.arange(len(rows.tokens), device=self._device) + length
        # Query heads that read the same keys are rows of one product.
        visible = {
            kind: seen.repeat_interleave(w.query_heads // w.key_heads, dim=0)
            for kind, seen in self.visible(rows, length, bucket).items()
        }
        # The sum that layers add to stays in float32, as in the lean forward.
        x = F.embedding(rows.tokens, w.embedding).float()  # [N, d]
        states, queries = {0: x}, []
        for number, (layer, kept) in enumerate(zip(w.layers, buffers.layers, strict=True)):
            assert kept is not None
            keys, values = kept
            query, key, value = self._projected(layer, layer.before_attention(x, self._dtype), by)
            queries.append(query)
            keys.index_copy_(1, slots, key.transpose(0, 1))
            values.index_copy_(1, slots, value.transpose(0, 1))
            mixed = F.scaled_dot_product_attention(
                query[None],
                keys[None, :, :bucket],
                values[None, :, :bucket],
                visible[SLIDING if layer.slides else FULL],
                scale=w.scale,
            )[0]
            # [G, N · H / G, D] → [N, H · D]
            x = x + layer.out(mixed.view(w.key_heads, len(x), -1).transpose(0, 1).flatten(1))
            x = x + mlp(layer, layer.before_mlp(x, self._dtype))
            if rows.features.layers:
                states[number + 1] = x
        states[BEFORE_NORM] = x
        x = states[-1] = states[len(w.layers)] = w.last_norm(x, self._dtype)
        logits = w.head(x[-rows.kept :] if rows.kept else x)
        wanted = [states[layer].to(self._dtype) for layer in rows.features.layers]
        if rows.features.queries:
            # [G, N · H / G, D] → [N, H · D]
            wanted += [
                query.unflatten(1, (len(x), -1)).transpose(0, 1).flatten(1).to(self._dtype)
                for query in queries
            ]
        return logits, wanted

    def _projected(
        self, layer: Layer, x: torch.Tensor, by: Rotations
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries [G, N · H / G, D] and keys [N, G, D], and values [N, G, D].

        Query heads that read the same keys are rows of one product.
        """
        w = self.weights
        qkv = layer.qkv(x).float().view(len(x), -1, w.head_size)  # [N, H + 2 G, D]
        query, key, value = qkv.split([w.query_heads, w.key_heads, w.key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = layer.query_norm(query, qkv.dtype), layer.key_norm(key, qkv.dtype)
        if layer.rotates:
            query, key = rotated(query, by), rotated(key, by)
        query = query.reshape(len(x), w.key_heads, -1, w.head_size).transpose(0, 1).flatten(1, 2)
        return query.to(self._dtype), key.to(self._dtype), value.to(self._dtype)
