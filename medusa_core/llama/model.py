"""A model in C: one call for the rows of a forward, from tensors to addresses.

N rows of all sequences · d hidden size · H query heads · D head size · V vocabulary
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.errors import MedusaError
from medusa_core.llama import structures
from medusa_core.llama.cache import LlamaCache
from medusa_core.llama.library import Library
from medusa_core.llama.panels import LANES, Panels, kind_of, wide
from medusa_core.llama.weights import Layer, Weights
from medusa_core.model.forward import Part
from medusa_core.model.rotary import Rotations


@dataclass(frozen=True)
class Results:
    """Tensors that are filled, in the dtype of the weights."""

    logits: torch.Tensor  # [rows kept of all sequences, V]
    kept: Sequence[int]  # of each, the last ones
    hidden: torch.Tensor | None = None  # [N, d], after the last norm
    before: Sequence[torch.Tensor | None] = ()  # [N, d]: x before each layer, and behind the last
    queries: Sequence[torch.Tensor] = ()  # [N, H · D] of each layer


class Llama:
    """Weights and sizes as C reads them."""

    def __init__(self, weights: Weights, rotated: int, library: Library) -> None:
        """``rotated`` numbers of each head are turned by positions."""
        self.weights, self.library = weights, library  # C holds their addresses
        self._layers = (structures.Layer * len(weights.layers))(*map(_layer, weights.layers))
        first = weights.layers[0]
        self.structure = structures.Model(
            kind=kind_of(weights.dtype),
            hidden=weights.hidden,
            inner=weights.inner,
            query_heads=weights.query_heads,
            key_heads=weights.key_heads,
            head_size=weights.head_size,
            rotated=rotated,
            layers=len(weights.layers),
            vocabulary=weights.vocabulary,
            scale=weights.scale,
            epsilon=first.before_mlp.epsilon,
            head_epsilon=first.query_norm.epsilon if first.query_norm is not None else 0.0,
            layer=self._layers,
            embedding=_address(weights.embedding),
            of_embedding=weights.of_embedding and weights.of_embedding.weight.data_ptr(),
            last_norm=weights.last_norm.weight.data_ptr(),
            head=weights.head.structure,
        )

    def new_cache(self, slots: int, window: int | None = None) -> LlamaCache:
        """A cache for one run; with a ``window`` one that drops what no layer sees any more."""
        w = self.weights
        return LlamaCache(len(w.layers), w.key_heads, w.head_size, slots, w.dtype, self.library, window)

    def work_bytes(self, rows: int, keys: int, threads: int) -> int:
        """Bytes of working memory for a call of so many rows, with so many keys in the longest sequence."""
        return int(self.library.functions.work_bytes(self.structure, rows, keys, threads))

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        table: Rotations,
        parts: Sequence[Part],
        results: Results,
        features: torch.Tensor | None = None,
    ) -> None:
        """Compute the rows ``tokens`` [N] and write their keys and values; commits nothing.

        Each is rotated by the row of ``table`` that ``positions`` [N] names.
        ``features`` [N, d] are what the hidden states begin with, instead of embeddings. Raises MedusaError
        for tokens outside the vocabulary and where a cache has no room.
        """
        for part in parts:
            cache, count = _cache(part), len(part.rows.tokens)
            cache.make_room(count)
            if cache.start + count > cache.rows:
                raise MedusaError(f"the cache has room for {cache.slots} rows")
        batch = self.batch(tokens.long().contiguous(), positions, table, parts, results, features)
        batch.threads = min(self.library.begin_call(), batch.most_threads)
        self.check(self.library.functions.forward(self.structure, batch))

    def check(self, status: int) -> None:
        """Record a contended call. Raises MedusaError for a token outside the vocabulary."""
        if status < 0:
            raise MedusaError(f"a token is none of the {self.weights.vocabulary} of the vocabulary")
        if status:
            self.library.was_late()

    def batch(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        table: Rotations,
        parts: Sequence[Part],
        results: Results,
        features: torch.Tensor | None = None,
        keys: int = 0,
    ) -> ctypes.Structure:
        """What ``run`` gives to the library; it keeps the tensors behind its addresses, except the results.

        It has working memory for ``keys`` of a sequence, or as many as it has now, on ``most_threads``. How
        many ``threads`` a call has is set before each call.
        """
        most = self.library.most_threads
        counts = [len(part.rows.tokens) for part in parts]
        place = None if list(results.kept) == counts else _places(counts, results.kept)
        sequences = [_sequence(part) for part in parts]
        keys = max(keys, *(own.length + own.rows for own in sequences))
        work = _cache(parts[0]).work(self.work_bytes(len(tokens), keys, most))
        batch = structures.Batch(
            rows=len(tokens),
            parts=len(sequences),
            kept=sum(results.kept),
            tokens=tokens.data_ptr(),
            positions=positions.data_ptr(),
            place=_address(place),
            cos=table.cos.data_ptr(),
            sin=table.sin.data_ptr(),
            part=(structures.Part * len(sequences))(*sequences),
            features=_address(features),
            work=work.data_ptr(),
            logits=results.logits.data_ptr(),
            hidden=_address(results.hidden),
            states=_addresses(results.before),
            queries=_addresses(results.queries),
        )
        batch.held = tokens, positions, place, table, sequences, features, work
        batch.most_threads = most
        return batch


def product(panels: Panels, x: torch.Tensor, library: Library) -> torch.Tensor:
    """A linear layer by itself: x [R, inputs] → [R, outputs]."""
    rows = x.new_zeros(-(-len(x) // LANES) * LANES, wide(panels.inputs))  # as AMX reads them
    rows[: len(x), : panels.inputs] = x
    result = x.new_empty(len(x), panels.outputs)
    addresses = rows.data_ptr(), len(x), result.data_ptr(), None
    if library.functions.run_product(panels.structure, *addresses, library.begin_call()):
        library.was_late()
    return result


def _places(counts: Sequence[int], kept: Sequence[int]) -> torch.Tensor:
    """Which row of the logits each row has, −1: none."""
    place, next_row = torch.full((sum(counts),), -1), 0
    for own, rows in zip(place.split(list(counts)), kept, strict=True):
        own[len(own) - rows :] = torch.arange(next_row, next_row + rows)
        next_row += rows
    return place


def _cache(part: Part) -> LlamaCache:
    if not isinstance(part.cache, LlamaCache):
        raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
    return part.cache


def _sequence(part: Part) -> ctypes.Structure:
    cache, seen, depths = _cache(part), part.rows.allowed.contiguous(), part.rows.depths.contiguous()
    sequence = structures.Part(
        rows=len(depths),
        length=cache.start,
        slots=cache.rows,
        columns=seen.shape[1],
        keys=cache.keys.data_ptr(),
        values=cache.values.data_ptr(),
        depths=depths.data_ptr(),
        seen=seen.data_ptr(),
    )
    sequence.held = seen, depths
    return sequence


def _layer(layer: Layer) -> ctypes.Structure:
    return structures.Layer(
        before_attention=layer.before_attention and layer.before_attention.weight.data_ptr(),
        query_norm=layer.query_norm and layer.query_norm.weight.data_ptr(),
        key_norm=layer.key_norm and layer.key_norm.weight.data_ptr(),
        before_mlp=layer.before_mlp.weight.data_ptr(),
        qkv=layer.qkv.structure,
        out=layer.out.structure,
        gate_up=layer.gate_up.structure,
        down=layer.down.structure,
        rotates=layer.rotates,
        window=layer.window or 0,
    )


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(tensors: Sequence[torch.Tensor | None]) -> ctypes.Array[ctypes.c_void_p] | None:
    """The tensors' addresses; None where no tensor is wanted."""
    if all(tensor is None for tensor in tensors):
        return None
    pointers = structures.ADDRESS * len(tensors)
    return pointers(*map(_address, tensors))
