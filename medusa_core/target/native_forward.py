"""The lean forward in C, for models in bfloat16 on a CPU that has instructions for it.

A forward of one row through a small model is some two hundred operations of torch, which together take as
long as reading the weights twice. In C it is one call. It computes what ``lean`` does on the same weights and
the same cache; ``native/forward.c`` says how. Forwards of more rows than a tree has go through ``lean``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from medusa_core.errors import MedusaError
from medusa_core.target.exact_attention import MOST_ROWS, WEIGHTS_BYTES
from medusa_core.target.features import BEFORE_NORM
from medusa_core.target.forward import Outputs, Part
from medusa_core.target.lean import LeanForward
from medusa_core.target.lean_cache import LeanCache
from medusa_core.target.lean_weights import Layer, LeanWeights, Norm
from medusa_core.target.masks import LayerMasks
from medusa_core.target.native import structures
from medusa_core.target.native.library import Library
from medusa_core.target.products import Linear

_LANES = 16  # rows of a block, and numbers of a vector
_LARGEST_HEAD = 256


class NotNativeError(Exception):
    """Why the forward in C cannot take a model."""


@dataclass(frozen=True)
class _Results:
    """What a forward writes, in bfloat16."""

    logits: torch.Tensor  # [rows kept of all parts, V]
    kept: list[int]  # of each part
    hidden: torch.Tensor  # [N, d], after the last norm
    states: dict[int, torch.Tensor]  # of the layers that are asked for
    queries: list[torch.Tensor]  # of every layer, or none


class NativeForward(LeanForward):
    """As ``LeanForward``, with forwards of up to ``MOST_ROWS`` rows in C."""

    def __init__(self, weights: LeanWeights, masks: LayerMasks, context: int, library: Library) -> None:
        """Raises NotNativeError for a model that it does not compute."""
        _require_known(weights, masks)
        super().__init__(weights, masks, context)
        self.library = library
        self._layers = (structures.Layer * len(weights.layers))(*map(_layer, weights.layers))
        self._model = self._described(weights)

    def first_layers(self, count: int, context: int) -> NativeForward:
        """As ``LeanForward``."""
        weights = replace(self.weights, layers=self.weights.layers[:count])
        return NativeForward(weights, self.masks, context, self.library)

    def _described(self, weights: LeanWeights) -> structures.Model:
        first = weights.layers[0]
        return structures.Model(
            hidden=weights.embedding.shape[1],
            inner=first.down.shape[1],
            query_heads=weights.query_heads,
            key_heads=weights.key_heads,
            head_size=weights.head_size,
            rotated=self._rotations.cos.shape[-1],
            layers=len(weights.layers),
            vocabulary=len(weights.embedding),
            tiles=self.library.tiles,
            scale=weights.scale,
            floor=_floor(first.before_attention),
            head_floor=_floor(first.query_norm),
            layer=self._layers,
            embedding=weights.embedding.data_ptr(),
            last_norm=weights.last_norm.weight.data_ptr(),
            head=_linear(weights.head),
        )

    def _run(self, parts: Sequence[Part]) -> list[Outputs]:
        counts = [len(part.rows.tokens) for part in parts]
        if sum(counts) > MOST_ROWS:
            return super()._run(parts)
        caches = [_cache_of(part) for part in parts]
        results = self._room_for(parts, counts)
        self._compute(parts, counts, caches, results)
        wanted = [*(results.states[layer] for layer in parts[0].rows.features.layers), *results.queries]
        if len(parts) == 1:
            return [(results.logits, wanted)]
        split = [state.split(counts) for state in wanted]
        logits = results.logits.split(results.kept)
        return [(own, [one[number] for one in split]) for number, own in enumerate(logits)]

    def _room_for(self, parts: Sequence[Part], counts: list[int]) -> _Results:
        embedding, features = self.weights.embedding, parts[0].rows.features  # the same for all
        rows, layers = sum(counts), len(self.weights.layers)
        kept = [part.rows.kept or count for part, count in zip(parts, counts, strict=True)]
        hidden = embedding.new_empty(rows, embedding.shape[1])
        # As transformers counts them, the last hidden state is the one after the norm.
        after_norm = -1, layers
        states = {
            layer: hidden if layer in after_norm else torch.empty_like(hidden) for layer in features.layers
        }
        size = self.weights.query_heads * self.weights.head_size
        queries = [embedding.new_empty(rows, size) for _ in range(layers)] if features.queries else []
        return _Results(embedding.new_empty(sum(kept), len(embedding)), kept, hidden, states, queries)

    def _compute(
        self, parts: Sequence[Part], counts: list[int], caches: list[LeanCache], results: _Results
    ) -> None:
        """Fill the results. All that C reads and writes has a name here until it has returned."""
        rows, layers = sum(counts), len(self.weights.layers)
        tokens = _joined([part.rows.tokens for part in parts])
        seen = [part.rows.allowed.contiguous() for part in parts]
        cos, sin = self._rotations_for(parts)
        place = None if results.kept == counts else _places(counts, results.kept)
        at_once, scores = self._scores(caches, counts)
        work = caches[0].work(self.library.functions.work_bytes(self._model, rows))
        before = [results.states.get(layer) for layer in (*range(layers), BEFORE_NORM)]
        batch = structures.Batch(
            rows=rows,
            parts=len(parts),
            threads=torch.get_num_threads(),
            rows_at_once=at_once,
            tokens=tokens.data_ptr(),
            place=None if place is None else place.data_ptr(),
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            part=(structures.Part * len(parts))(*map(_part, caches, counts, seen)),
            work=work.data_ptr(),
            scores=scores.data_ptr(),
            logits=results.logits.data_ptr(),
            hidden=results.hidden.data_ptr(),
            states=_addresses(before),
            queries=_addresses(results.queries),
        )
        if self.library.functions.forward(self._model, batch):
            raise MedusaError(f"a token is none of the {len(self.weights.embedding)} of the vocabulary")

    def _scores(self, caches: Sequence[LeanCache], counts: Sequence[int]) -> tuple[int, torch.Tensor]:
        """How many rows of each part attend at once, and room for their scores."""
        keys = sum(
            -(-(cache.length + count) // _LANES) * _LANES for cache, count in zip(caches, counts, strict=True)
        )
        heads = self.weights.query_heads
        at_once = max(1, min(max(counts), WEIGHTS_BYTES // (heads * keys * torch.float32.itemsize)))
        return at_once, caches[0].buffer(heads * at_once, keys)


def _require_known(weights: LeanWeights, masks: LayerMasks) -> None:
    if weights.embedding.dtype != torch.bfloat16 or weights.embedding.device.type != "cpu":
        raise NotNativeError("it computes in bfloat16 on a CPU")
    if weights.packed:
        raise NotNativeError("its weights are packed")
    if masks.only_window is not None or any(layer.slides for layer in weights.layers):
        raise NotNativeError("its layers have windows")
    if weights.head_size % _LANES or weights.head_size > _LARGEST_HEAD:
        raise NotNativeError(f"its heads have {weights.head_size} numbers")
    for product in weights.products():
        outputs, inputs = product.shape
        if outputs % _LANES or inputs % (2 * _LANES):
            raise NotNativeError(f"it has a product of {outputs} × {inputs}")
    x = torch.linspace(-4, 4, 9)
    if any(not torch.equal(layer.activation(x), F.silu(x)) for layer in weights.layers):
        raise NotNativeError("its activation is not SiLU")


def _cache_of(part: Part) -> LeanCache:
    if not isinstance(part.cache, LeanCache):
        raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
    if part.cache.length + len(part.rows.tokens) > part.cache.rows:
        raise MedusaError(f"the cache has room for {part.cache.rows} rows")
    return part.cache


def _addresses(tensors: Sequence[torch.Tensor | None]) -> ctypes.Array[ctypes.c_void_p] | None:
    """None where no tensor is wanted at all."""
    if all(tensor is None for tensor in tensors):
        return None
    pointers = ctypes.c_void_p * len(tensors)
    return pointers(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))


def _part(cache: LeanCache, count: int, seen: torch.Tensor) -> structures.Part:
    return structures.Part(
        rows=count,
        length=cache.length,
        slots=cache.rows,
        keys=cache.keys.data_ptr(),
        values=cache.values.data_ptr(),
        seen=seen.data_ptr(),
    )


def _places(counts: Sequence[int], kept: Sequence[int]) -> torch.Tensor:
    """Which row of the logits each row has, −1: none. The last ``kept`` rows of each part have one."""
    place, next_row = torch.full((sum(counts),), -1), 0
    for own, rows in zip(place.split(list(counts)), kept, strict=True):
        own[-rows:] = torch.arange(next_row, next_row + rows)
        next_row += rows
    return place


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All tokens behind each other."""
    return (tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))).long().contiguous()


def _layer(layer: Layer) -> structures.Layer:
    return structures.Layer(
        before_attention=layer.before_attention.weight.data_ptr(),
        query_norm=layer.query_norm and layer.query_norm.weight.data_ptr(),
        key_norm=layer.key_norm and layer.key_norm.weight.data_ptr(),
        before_mlp=layer.before_mlp.weight.data_ptr(),
        qkv=_linear(layer.qkv),
        out=_linear(layer.out),
        gate_up=_linear(layer.gate_up),
        down=_linear(layer.down),
        rotates=layer.rotates,
    )


def _linear(linear: Linear) -> structures.Linear:
    return structures.Linear(
        linear.weight.data_ptr(), None if linear.bias is None else linear.bias.data_ptr()
    )


def _floor(norm: Norm | None) -> float:
    """n ε, from its root."""
    return 0.0 if norm is None else float(norm.floor) ** 2
