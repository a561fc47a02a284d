"""transformers' forward of any family as a graph can capture it, over a cache at addresses that stay.

The model gets a mask over a bucket of slots, positions and a cache that writes where a tensor on the device
says. What else it does is its own: one that reads a value on the host cannot be recorded and runs as it is.

N rows, padded · B slots of a bucket · G key-value heads · D head size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from medusa_core.model.forward import Outputs, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.loaded_model import LoadedModel
from medusa_core.model.masks import LayerMasks
from medusa_core.model.recording import recorded
from medusa_core.model.static_cache import Buffers, LayerShape
from medusa_core.model.static_forward import Record, StaticForward, not_recorded


class StaticModel(StaticForward):
    """As ``StaticForward``, by the model that transformers has loaded."""

    def __init__(
        self,
        held: LoadedModel,
        shapes: Sequence[LayerShape | None],
        masks: LayerMasks,
        record: Record = not_recorded,
    ) -> None:
        """``shapes`` as ``shapes_of`` a cache in which the model has written."""
        super().__init__(shapes, masks, held.device, record)
        self._held = held

    def compute(
        self, rows: Rows, length: torch.Tensor, position: torch.Tensor, buffers: Buffers, bucket: int
    ) -> Outputs:
        """As ``StaticForward``."""
        read = recorded(
            self._held.model,
            rows.features,
            input_ids=rows.tokens[None],
            attention_mask=self._masks.for_model(self.visible(rows, length, bucket), self._held.dtype),
            position_ids=(rows.depths + position)[None],
            past_key_values=_SlotCache(buffers, length, len(rows.tokens), bucket),
            use_cache=True,
            **({"logits_to_keep": rows.kept} if self._held.limits_head else {}),
        )
        return read.of()


def shapes_of(cache: TreeCache) -> list[LayerShape | None]:
    """What each layer keeps of a row, once a model has written one; None where it reads another layer's."""
    return [
        LayerShape(_heads(layer.keys), _heads(layer.values), layer.keys.dtype)
        if layer.is_initialized
        else None
        for layer in cache.tree_layers
    ]


def _heads(rows: torch.Tensor) -> tuple[int, int]:
    return rows.shape[1], rows.shape[3]


class _SlotLayer(CacheLayerMixin):
    """One layer of a forward: rows go to ``slots`` [N], and the first ``bucket`` slots are read."""

    is_compileable = False
    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        own: tuple[torch.Tensor, torch.Tensor] | None,
        length: torch.Tensor,
        slots: torch.Tensor,
        bucket: int,
    ) -> None:
        super().__init__()
        self._length, self._slots, self._bucket = length, slots, bucket
        if own is not None:
            self.keys, self.values = own[0][None], own[1][None]
            self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Its memory is given."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write rows [1, G, N, D]; return the slots of the bucket [1, G, B, D], which the mask knows."""
        self.keys.index_copy_(2, self._slots, key_states)
        self.values.index_copy_(2, self._slots, value_states)
        return self.keys[:, :, : self._bucket], self.values[:, :, : self._bucket]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width of the mask and its offset, as transformers asks for them."""
        return self._bucket, 0

    def get_seq_length(self) -> Any:
        """Committed rows, as a number on the device: one of the host would be the same in each replay."""
        return self._length

    def get_max_length(self) -> int:
        """B."""
        return self._bucket


class _SlotCache(Cache):
    """The cache of one forward."""

    def __init__(self, buffers: Buffers, length: torch.Tensor, rows: int, bucket: int) -> None:
        slots = torch.arange(rows, device=length.device) + length
        super().__init__(layers=[_SlotLayer(own, length, slots, bucket) for own in buffers.layers])
