"""transformers' forward, for models of any family on any device: the reference, and what runs without our C.

A tree goes through the model's own forward with a 4-D mask for each kind of layer and explicit positions.
Several texts share a forward: the shorter ones are padded on the left, over caches that are joined for it.

N rows · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from medusa_core.model.context import rotary_settings
from medusa_core.model.forward import Outputs, Part, Rows
from medusa_core.model.joint_cache import JointCache, padded
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.loaded_model import LoadedModel
from medusa_core.model.masks import LayerMasks
from medusa_core.model.recording import Recording, recorded


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
            TransformersForward.__call__(self, [Part(Rows.of_text([0], self._held.device, 1), cache)])
        return cache.nbytes * slots

    def __call__(self, parts: Sequence[Part]) -> list[Outputs]:
        """One output for each part, in one padded forward where several may share it."""
        if len(parts) > 1 and not self.reads_together:
            return [self([part])[0] for part in parts]
        counts = [len(part.rows.tokens) for part in parts]
        places = [(part.rows.allowed, part.rows.depths, part.cache.length) for part in parts]
        cache: Cache = parts[0].cache
        if len(parts) == 1:
            mask = self._masks.build(*places[0], self._held.dtype)
        else:
            mask = self._masks.build_together(places, self._held.dtype)
            cache = JointCache([part.cache for part in parts], counts)
        read = self._run(
            parts[0].rows,
            input_ids=padded([part.rows.tokens for part in parts]),
            attention_mask=mask,
            position_ids=padded([part.rows.depths + part.cache.position for part in parts]),
            past_key_values=cache,
        )
        return [self._results(read, text, count) for text, count in enumerate(counts)]

    def _run(self, rows: Rows, **inputs: Any) -> Recording:
        """The model on ``inputs``, with as many logits as ``rows`` keep."""
        limit = {"logits_to_keep": rows.kept} if self._held.limits_head else {}
        return recorded(self._held.model, rows.features, use_cache=True, **inputs, **limit)

    def _results(self, read: Recording, text: int, count: int) -> Outputs:
        """Logits and hidden states of the last ``count`` rows of a text, where the LM head and heads are."""
        logits, states = read.of(text, count)
        # A model spread over devices leaves each layer's queries where the layer is, and hands its results
        # back where the token ids came from.
        place = self._held.output_device
        return logits.to(place), [state.to(place) for state in states]
