"""transformers' forward, for models of any family on any device: the reference, and what runs without our C.

A tree goes through the model's own forward with a 4-D mask for each kind of layer and explicit positions.
Several texts share a forward that reads the weights once. transformers takes a batch as [B, N] with one
cache; here each text keeps its own ``TreeCache``: for one forward their rows are put together, padded on the
left to the longest, and new rows go to their owners.

N rows (of a batch: of the longest tree) · V vocabulary · d hidden size · B texts · W rows of the longest
cache with its tree · G key-value heads · D head size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from medusa_core.model.context import rotary_settings
from medusa_core.model.forward import Outputs, Part, Rows
from medusa_core.model.kv_cache import TreeCache, TreeLayer
from medusa_core.model.loaded_model import LoadedModel
from medusa_core.model.masks import LayerMasks
from medusa_core.model.recording import Recording, forward_with_features


class TransformersForward:
    """The ``Forward`` of a model that transformers has loaded."""

    copied_bytes = 0

    def __init__(self, held: LoadedModel, masks: LayerMasks) -> None:
        self._held, self._masks = held, masks

    @property
    def reads_together(self) -> bool:
        """Whether several texts may share a forward: else each has its own."""
        # A dynamic rotation follows the longest text of the forward.
        kinds = {settings.get("rope_type") for settings in rotary_settings(self._held.config)}
        return self._held.is_proven and not kinds & {"dynamic", "longrope"}

    def new_cache(self, slots: int) -> TreeCache:
        """An empty cache, which grows with the text."""
        return TreeCache(self._held.config.num_hidden_layers, slots)

    def cache_bytes(self, slots: int) -> int:
        """Bytes of so many slots. Families keep different things, so one row is written and measured."""
        cache = TreeCache(self._held.config.num_hidden_layers, 1)
        with torch.inference_mode():
            # Not a subclass's call, which may refuse a cache that it has not made.
            TransformersForward.__call__(self, [Part(Rows.of_text([0], self._held.device, 1), cache)])
        return cache.nbytes * slots

    def __call__(self, parts: Sequence[Part]) -> list[Outputs]:
        """One output for each part, in one padded forward where several may share it."""
        if len(parts) > 1 and not self.reads_together:
            return [self([part])[0] for part in parts]
        counts = [len(part.rows.tokens) for part in parts]
        places = [(part.rows.allowed, part.rows.depths, part.cache.length) for part in parts]
        cache: Cache = parts[0].cache
        if len(parts) > 1:
            by_layer = zip(*(part.cache.tree_layers for part in parts), strict=True)
            cache = Cache(layers=[JointLayer(owners, counts) for owners in by_layer])
        read = self._run(
            parts[0].rows,
            input_ids=padded([part.rows.tokens for part in parts]),
            attention_mask=self._masks.build(places, self._held.dtype),
            position_ids=padded([part.rows.depths + part.cache.position for part in parts]),
            **{self._held.cache_argument: cache},
        )
        return [self._results(read, text, count) for text, count in enumerate(counts)]

    def _run(self, rows: Rows, **inputs: Any) -> Recording:
        """The model on ``inputs``, with as many logits as ``rows`` keep."""
        limit = {"logits_to_keep": rows.kept} if self._held.limits_head else {}
        return forward_with_features(self._held.model, rows.features, use_cache=True, **inputs, **limit)

    def _results(self, read: Recording, text: int, count: int) -> Outputs:
        """Logits and hidden states of the last ``count`` rows of a text, where the LM head and heads are."""
        logits, states = read.of(text, count)
        # A model spread over devices leaves each layer's queries where the layer is, and hands its results
        # back where the token ids came from.
        place = self._held.output_device
        return logits.to(place), [state.to(place) for state in states]


class JointLayer(CacheLayerMixin):
    """One decoder layer of several caches, for one forward."""

    def __init__(self, owners: Sequence[TreeLayer], counts: Sequence[int]) -> None:
        super().__init__()
        self._owners = owners
        self._counts = counts  # new rows of each text

    @property
    def width(self) -> int:
        return max(owner.length + count for owner, count in zip(self._owners, self._counts, strict=True))

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to allocate: the owners' layers do."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give each owner its rows of [B, G, N, D]; return what all hold, [B, G, W, D], on the right."""
        width = self.width
        shape = (len(self._owners), key_states.shape[1], width)
        keys = key_states.new_zeros(*shape, key_states.shape[3])
        values = value_states.new_zeros(*shape, value_states.shape[3])
        for text, (owner, count) in enumerate(zip(self._owners, self._counts, strict=True)):
            new = slice(text, text + 1), slice(None), slice(key_states.shape[2] - count, None)
            held = owner.update(key_states[new], value_states[new])
            behind = slice(width - held[0].shape[2], None)
            keys[text, :, behind], values[text, :, behind] = held[0][0], held[1][0]
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width of the mask and its offset, as transformers asks for them."""
        return self.width, 0

    def get_seq_length(self) -> int:
        """Rows before the new ones, of the text that has the most."""
        return self.width - max(self._counts)

    def get_max_length(self) -> int:
        """W: it lives for one forward."""
        return self.width


def padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows [n] of several texts as [B, N], zeros on the left of the shorter ones."""
    longest = max(map(len, rows))
    result = rows[0].new_zeros(len(rows), longest)
    for text, row in enumerate(rows):
        result[text, longest - len(row) :] = row
    return result
