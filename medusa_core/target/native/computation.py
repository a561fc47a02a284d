"""One call of the forward in C: what it is given, from tensors to addresses.

N rows of all sequences · d hidden size · H query heads · D head size · V vocabulary
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from medusa_core.errors import MedusaError
from medusa_core.target.exact_attention import WEIGHTS_BYTES
from medusa_core.target.lean_weights import Layer, LeanWeights, Norm
from medusa_core.target.native import structures
from medusa_core.target.native.cache import NativeCache, attends_by_tiles, native_cache
from medusa_core.target.native.library import Library
from medusa_core.target.products import Linear
from medusa_core.target.rotary import Rotations

_LANES = 16  # rows of a block, and numbers of a vector


class NotNativeError(Exception):
    """Why the forward in C cannot take a model."""


@dataclass(frozen=True)
class Attending:
    """Rows of one sequence, behind the committed ones of its cache and what else has been written there."""

    count: int
    cache: NativeCache
    seen: torch.Tensor  # bool [count, keys], contiguous: of the last keys; those before them all rows see
    depths: torch.Tensor  # [count], contiguous: their positions, counted from ``length``
    written: int = 0  # rows behind the committed ones

    @property
    def length(self) -> int:
        """Rows in front of these."""
        return self.cache.length + self.written


@dataclass(frozen=True)
class Results:
    """Tensors that are filled, in bfloat16."""

    logits: torch.Tensor  # [rows kept of all sequences, V]
    kept: Sequence[int]  # of each, the last ones
    hidden: torch.Tensor | None = None  # [N, d], after the last norm
    before: Sequence[torch.Tensor | None] = ()  # [N, d]: x before each layer, and behind the last
    queries: Sequence[torch.Tensor] = field(default=())  # [N, H · D] of each layer

    def of_rows(self, start: int, end: int, count: int) -> Results:
        """Those of rows ``start`` to ``end`` of a single sequence of ``count``."""
        first = count - self.kept[0]  # row with logits
        logits = self.logits[max(start - first, 0) : max(end - first, 0)]
        before = [None if one is None else one[start:end] for one in self.before]
        hidden = None if self.hidden is None else self.hidden[start:end]
        return Results(logits, [len(logits)], hidden, before, [one[start:end] for one in self.queries])


class Computation:
    """A model in C."""

    def __init__(
        self, weights: LeanWeights, rotated: int, library: Library, of_embedding: Norm | None = None
    ) -> None:
        """``rotated`` numbers of each head are turned by positions. Raises NotNativeError.

        With ``of_embedding`` the first product of a layer reads the embedding, normed by it, before the
        normed hidden state, as EAGLE-3's does.
        """
        _require_known(weights)
        self._weights, self._of_embedding = weights, of_embedding  # whose addresses are held
        self.library, self._functions = library, library.functions
        self.tiled = attends_by_tiles(library, weights.head_size)  # whether attention runs on AMX
        self._layers = (structures.Layer * len(weights.layers))(*map(_layer, weights.layers))
        for layer in self._layers:
            layer.of_embedding = of_embedding and of_embedding.weight.data_ptr()
        first = weights.layers[0]
        self.model = structures.Model(
            hidden=weights.embedding.shape[1],
            inner=first.down.shape[1],
            query_heads=weights.query_heads,
            key_heads=weights.key_heads,
            head_size=weights.head_size,
            rotated=rotated,
            layers=len(weights.layers),
            vocabulary=len(weights.embedding),
            outputs=weights.head.shape[0],
            tiles=library.tiles,
            tiled=self.tiled,
            scale=weights.scale,
            floor=_floor(first.before_attention),
            head_floor=_floor(first.query_norm),
            layer=self._layers,
            embedding=weights.embedding.data_ptr(),
            last_norm=weights.last_norm.weight.data_ptr(),
            head=_linear(weights.head),
        )

    def new_cache(self, slots: int) -> NativeCache:
        """A cache for one run."""
        w = self._weights
        return native_cache(len(w.layers), w.key_heads, w.head_size, slots, self.library)

    def attention_bytes(self, rows: int, keys: int) -> int:
        """What attention by AMX writes to with so many rows at once."""
        room = self._functions.tile_room(self.model, rows, keys, torch.get_num_threads())
        return int(room * torch.float32.itemsize)

    def work_bytes(self, rows: int) -> int:
        """What else is written to with so many rows."""
        return int(self._functions.work_bytes(self.model, rows))

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        table: Rotations,
        sequences: Sequence[Attending],
        results: Results,
        features: torch.Tensor | None = None,
    ) -> None:
        """Compute the rows ``tokens`` [N] and write their keys and values; commits nothing.

        Each is rotated by the row of ``table`` that ``positions`` [N] names.
        ``features`` [N, d] are what the hidden states begin with, instead of embeddings. Raises MedusaError
        for tokens outside the vocabulary and where a cache has no room.
        """
        for own in sequences:
            if own.length + own.count > own.cache.slots:
                raise MedusaError(f"the cache has room for {own.cache.slots} rows")
        batch = self.batch(tokens.long().contiguous(), positions, table, sequences, results, features)
        self.told(self._functions.forward(self.model, batch))

    def told(self, answer: int) -> None:
        """What a call of the library has answered. Raises MedusaError for a token that is none."""
        if answer < 0:
            raise MedusaError(f"a token is none of the {len(self._weights.embedding)} of the vocabulary")
        if answer:
            self.library.was_late()

    def batch(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        table: Rotations,
        sequences: Sequence[Attending],
        results: Results,
        features: torch.Tensor | None = None,
        keys: int = 0,
    ) -> structures.Batch:
        """What ``run`` gives to the library; it holds what the addresses are of, but the results.

        It has room for attention to as many ``keys`` as a cache will have, 0: as there are now.
        """
        counts = [own.count for own in sequences]
        place = None if list(results.kept) == counts else _places(counts, results.kept)
        at_once, scores = self._room_for_scores(sequences, torch.get_num_threads(), keys)
        first = sequences[0].cache
        work = first.work(self.work_bytes(len(tokens)))
        batch = structures.Batch(
            rows=len(tokens),
            parts=len(sequences),
            threads=self.library.threads,
            rows_at_once=at_once,
            tokens=tokens.data_ptr(),
            positions=positions.data_ptr(),
            place=_address(place),
            cos=table.cos.data_ptr(),
            sin=table.sin.data_ptr(),
            part=(structures.Part * len(sequences))(*map(_part, sequences)),
            features=_address(features),
            work=work.data_ptr(),
            scores=scores.data_ptr(),
            logits=results.logits.data_ptr(),
            hidden=_address(results.hidden),
            states=_addresses(results.before),
            queries=_addresses(results.queries),
        )
        batch.held = tokens, positions, place, table, sequences, features, work, scores
        return batch

    def _room_for_scores(
        self, sequences: Sequence[Attending], threads: int, keys: int
    ) -> tuple[int, torch.Tensor]:
        """How many rows of each sequence attend at once, and room for their scores."""
        cache = sequences[0].cache
        if self.tiled:
            slots, rows = max(own.cache.rows for own in sequences), max(own.count for own in sequences)
            return 0, cache.buffer(1, self._functions.tile_room(self.model, rows, slots, threads))
        ends = [keys] if keys else [own.length + own.count for own in sequences]
        keys = sum(-(-end // _LANES) * _LANES for end in ends)
        heads, longest = self._weights.query_heads, max(own.count for own in sequences)
        at_once = max(1, min(longest, WEIGHTS_BYTES // (heads * keys * torch.float32.itemsize)))
        return at_once, cache.buffer(heads * at_once, keys)


def takes_sizes(head_size: int, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    """Whether products of these sizes and heads are whole vectors; what goes in also comes out of one."""
    return all(size % (2 * _LANES) == 0 for size in inputs) and all(
        size % _LANES == 0 for size in (head_size, *outputs)
    )


def _require_known(weights: LeanWeights) -> None:
    if weights.embedding.dtype != torch.bfloat16 or weights.embedding.device.type != "cpu":
        raise NotNativeError("it computes in bfloat16 on a CPU")
    if weights.packed:
        raise NotNativeError("its weights are packed")
    if weights.head_size % _LANES:
        raise NotNativeError(f"its heads have {weights.head_size} numbers")
    for product in weights.products():
        outputs, inputs = product.shape
        if outputs % _LANES or inputs % (2 * _LANES):
            raise NotNativeError(f"it has a product of {outputs} × {inputs}")
    x = torch.linspace(-4, 4, 9)
    if any(not torch.equal(layer.activation(x), F.silu(x)) for layer in weights.layers):
        raise NotNativeError("its activation is not SiLU")


def _places(counts: Sequence[int], kept: Sequence[int]) -> torch.Tensor:
    """Which row of the logits each row has, −1: none."""
    place, next_row = torch.full((sum(counts),), -1), 0
    for own, rows in zip(place.split(list(counts)), kept, strict=True):
        own[len(own) - rows :] = torch.arange(next_row, next_row + rows)
        next_row += rows
    return place


def _part(own: Attending) -> structures.Part:
    return structures.Part(
        rows=own.count,
        length=own.length,
        slots=own.cache.rows,
        columns=own.seen.shape[1],
        keys=own.cache.keys.data_ptr(),
        values=own.cache.values.data_ptr(),
        depths=own.depths.data_ptr(),
        seen=own.seen.data_ptr(),
    )


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
    return structures.Linear(linear.weight.data_ptr(), _address(linear.bias))


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(tensors: Sequence[torch.Tensor | None]) -> ctypes.Array[ctypes.c_void_p] | None:
    """None where no tensor is wanted at all."""
    if all(tensor is None for tensor in tensors):
        return None
    pointers = ctypes.c_void_p * len(tensors)
    return pointers(*map(_address, tensors))


def _floor(norm: Norm | None) -> float:
    """n ε, from its root."""
    return 0.0 if norm is None else float(norm.floor) ** 2
