"""The forward of a Llama-like model, written out: what a step of decoding computes and nothing else.

transformers' model does the same through several calls for each module, which for a small model take half
of the time. Here queries, keys and values are one product, gate and up another; a few rows are rotated by
one product with a matrix for each, many by a table of cos and sin; new keys and values are written into the
cache where they stay, and the LM head runs on the rows that are asked for. Attention of a tree or of a few
rows is exact in the sense of ``exact_attention``; a long part of a prompt goes through torch's own kernel.
transformers' model stays the reference: every model that it has loaded is compared with it then, every
family node by node in the tests.

The rows of several sequences share the products, whose weights are then read once for all of them; each
sequence attends to its own cache.

N rows of a forward · d hidden size · H query heads · G key-value heads · D head size · L committed rows
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from medusa_core.errors import MedusaError
from medusa_core.model.exact_attention import MOST_ROWS, Chunk, Room, attend, attention_bytes, chunks_of
from medusa_core.model.features import BEFORE_NORM
from medusa_core.model.forward import Outputs, Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.lean_cache import LeanCache, first_row_seen, row_bytes, window_slots
from medusa_core.model.lean_weights import Layer, LeanWeights
from medusa_core.model.masks import FULL, SLIDING, LayerMasks
from medusa_core.model.rotary import Rotations, Turns, rotated, rotations


@dataclass(frozen=True)
class _Attended:
    """What all layers share of one sequence: where its rows are written and what they see."""

    count: int
    visible: dict[str, torch.Tensor]  # by kind of layer: bool [N, L + N]
    hidden: dict[str, torch.Tensor | None]  # 0 or −∞ for the last keys [N · H / G, …]
    chunks: list[Chunk]
    # Of each layer: the columns and rows of this forward, and all that are read, up to them.
    new_keys: Sequence[torch.Tensor]  # [G, D, N]
    new_values: Sequence[torch.Tensor]  # [G, N, D]
    keys: Sequence[torch.Tensor]  # [G, D, L + N]
    values: Sequence[torch.Tensor]  # [G, L + N, D + ONES]
    room: Room | None  # for the attention weights of a layer


@dataclass(frozen=True)
class _Batch:
    """The sequences of one forward; their rows lie behind each other."""

    sequences: list[_Attended]
    counts: list[int]
    rotations: Rotations  # of all rows
    turns: torch.Tensor | None  # the same as matrices, where the rows are few


class LeanForward:
    """The ``Forward`` of a CPU."""

    def __init__(self, weights: LeanWeights, masks: LayerMasks, context: int) -> None:
        """``context`` is the number of positions that may be asked for."""
        self.weights = weights
        self.masks = masks
        self._context = context
        self._dtype = weights.embedding.dtype
        # A table never goes beyond the context: there a rotation that depends on the length is another one.
        self._rotations = rotations(weights.rotary, min(MOST_ROWS, context), weights.embedding.device)
        width = self._rotations.cos.shape[-1]
        self._turns = Turns(weights.head_size, width, weights.embedding.device)

    def first_layers(self, count: int, context: int) -> LeanForward:
        """A forward of so many layers, the last norm and the LM head, to try something out on."""
        weights = replace(self.weights, layers=self.weights.layers[:count])
        return LeanForward(weights, self.masks, context)

    def new_cache(self, slots: int) -> LeanCache:
        """A cache for one run."""
        w = self.weights
        self.prepare_positions(slots)
        return LeanCache(
            len(w.layers), w.key_heads, w.head_size, slots, w.embedding.device, self.masks.only_window
        )

    @property
    def copied_bytes(self) -> int:
        """As ``Forward``: packed weights."""
        if not self.weights.packed:
            return 0
        return sum(math.prod(product.shape) for product in self.weights.products()) * self._dtype.itemsize

    def cache_bytes(self, slots: int) -> int:
        """As ``Forward``: no more than a window's rows where every layer has one."""
        w, window = self.weights, self.masks.only_window
        rows = slots if window is None else min(slots, window_slots(window))
        return len(w.layers) * w.key_heads * row_bytes(w.head_size) * rows

    def attention_bytes(self, rows: int, keys: int) -> int:
        """What attention works in with so many rows at once, as the keys come to be so many."""
        groups = self.weights.key_heads
        return attention_bytes(groups, self.weights.query_heads // groups * rows, keys)

    def __call__(self, rows: Rows, cache: TreeCache) -> Outputs:
        """As ``Forward``."""
        return self._run([Part(rows, cache)])[0]

    def together(self, parts: Sequence[Part]) -> list[Outputs]:
        """As ``Forward``: in as few passes as there can be without one of more rows than a tree may have.

        Up to so many rows a product is known to give each row the bits that it gets alone.
        """
        outputs: list[Outputs] = []
        group: list[Part] = []
        for part in parts:
            if group and sum(len(one.rows.tokens) for one in [*group, part]) > MOST_ROWS:
                outputs += self._run(group)
                group = []
            group.append(part)
        return outputs + self._run(group) if group else outputs

    def _run(self, parts: Sequence[Part]) -> list[Outputs]:
        batch = self._batch(parts)
        features = parts[0].rows.features  # the same for all: the runs of a batch have one method
        layers = features.layers
        queries: list[torch.Tensor] | None = [] if features.queries else None
        # The sum that layers add to stays in float32: each norm would widen it anyway.
        x = F.embedding(
            _joined([part.rows.tokens for part in parts]), self.weights.embedding
        ).float()  # [N, d]
        states = {}
        for number, layer in enumerate(self.weights.layers):
            if number in layers:
                states[number] = x.clone()
            normed = layer.before_attention(x, self._dtype)
            x.add_(self._attention(layer, number, normed, batch, queries))  # [N, d]
            x.add_(mlp(layer, layer.before_mlp(x, self._dtype)))
        states[BEFORE_NORM] = x
        # As transformers counts them, the last hidden state is the one after the norm.
        x = states[-1] = states[len(self.weights.layers)] = self.weights.last_norm(x, self._dtype)
        wanted = [state.to(self._dtype) for state in (*(states[layer] for layer in layers), *(queries or ()))]
        if len(parts) == 1:
            kept = parts[0].rows.kept
            return [(self.weights.head(x[-kept:] if kept else x), wanted)]
        return self._parted(x, wanted, parts, batch.counts)

    def _parted(
        self, x: torch.Tensor, states: Sequence[torch.Tensor], parts: Sequence[Part], counts: list[int]
    ) -> list[Outputs]:
        """What belongs to each sequence, by one product with the LM head."""
        kept = [part.rows.kept or count for part, count in zip(parts, counts, strict=True)]
        if kept != counts:
            x = torch.cat([own[-rows:] for own, rows in zip(x.split(counts), kept, strict=True)])
        logits, split = self.weights.head(x).split(kept), [state.split(counts) for state in states]
        return [(logits[number], [state[number] for state in split]) for number in range(len(parts))]

    def _attention(
        self,
        layer: Layer,
        number: int,
        x: torch.Tensor,
        batch: _Batch,
        queries: list[torch.Tensor] | None,
    ) -> torch.Tensor:
        """Write the rows' keys and values behind the committed ones and attend to both: [N, d] → [N, d].

        The rows' queries [N, H · D] are added to ``queries`` where that is given.
        """
        w = self.weights
        qkv = layer.qkv(x).float().view(len(x), -1, w.head_size)  # [N, H + 2 G, D]
        both, values = qkv.split([w.query_heads + w.key_heads, w.key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = both.split([w.query_heads, w.key_heads], dim=1)
            both = torch.cat([layer.query_norm(query, qkv.dtype), layer.key_norm(key, qkv.dtype)], dim=1)
        if layer.rotates:
            turns = batch.turns
            both = rotated(both, batch.rotations) if turns is None else torch.bmm(both, turns)
        if queries is not None:
            queries.append(both[:, : w.query_heads].flatten(1))
        kind = SLIDING if layer.slides else FULL
        if len(batch.sequences) == 1:
            return layer.out(self._attended(number, kind, both, values, batch.sequences[0]))
        rows = zip(both.split(batch.counts), values.split(batch.counts), batch.sequences, strict=True)
        return layer.out(torch.cat([self._attended(number, kind, *one) for one in rows]))

    def _attended(
        self, number: int, kind: str, both: torch.Tensor, value: torch.Tensor, rows: _Attended
    ) -> torch.Tensor:
        """One sequence: queries and keys [N, H + G, D] and values [N, G, D] → [N, H · D]."""
        w, count = self.weights, rows.count
        query, key = both.split([w.query_heads, w.key_heads], dim=1)
        rows.new_keys[number].copy_(key.permute(1, 2, 0))
        rows.new_values[number].copy_(value.transpose(0, 1))
        keys, values = rows.keys[number], rows.values[number]
        if count > MOST_ROWS:
            return self._long(query, keys, values, rows.visible[kind])
        sums = attend(
            self._grouped(query),
            keys,
            values,
            rows.hidden[kind],
            rows.chunks,
            w.scale,
            rows.room,
        )
        mixed = sums.narrow(-1, 0, w.head_size) / sums.narrow(-1, w.head_size, 1)  # [G, N · H / G, D]
        if count == 1 or w.key_heads == 1:
            return mixed.to(self._dtype).view(count, -1)
        mixed = mixed.view(w.key_heads, count, -1, w.head_size).transpose(0, 1)
        return mixed.to(self._dtype, memory_format=torch.contiguous_format).reshape(count, -1)

    def _grouped(self, query: torch.Tensor) -> torch.Tensor:
        """Query heads that read the same keys as rows of one product: [N, H, D] → [G, N · H / G, D]."""
        groups, size = self.weights.key_heads, self.weights.head_size
        if len(query) == 1 or groups == 1:
            return query.reshape(groups, -1, size)
        return query.view(len(query), groups, -1, size).transpose(0, 1).reshape(groups, -1, size)

    def _long(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor
    ) -> torch.Tensor:
        """Attention of many rows at once by torch's kernel, in the dtype of the weights: [N, H · D]."""
        # The kernel that keeps no matrix of scores wants the numbers of a key beside each other.
        query, keys = query.transpose(0, 1).to(self._dtype), keys.transpose(1, 2).to(self._dtype).contiguous()
        values = values[..., : self.weights.head_size].to(self._dtype)
        mixed = F.scaled_dot_product_attention(
            query[None], keys[None], values[None], visible, scale=self.weights.scale, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).flatten(1)

    def _batch(self, parts: Sequence[Part]) -> _Batch:
        """Raises MedusaError for the cache of another forward."""
        sequences = [self._sequence(part.rows, part.cache) for part in parts]
        counts = [sequence.count for sequence in sequences]
        by = self._rotations_for(parts)
        return _Batch(sequences, counts, by, self._turns.by(by) if sum(counts) <= MOST_ROWS else None)

    def _sequence(self, rows: Rows, cache: TreeCache) -> _Attended:
        if not isinstance(cache, LeanCache):
            raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
        depths, allowed = rows.depths, rows.allowed
        count, start, window = len(depths), cache.length, self.masks.only_window
        cache.make_room(count)
        # Rows before the first are out of every layer's window; places are those in the buffers.
        first = first_row_seen(start, window) if window is not None else 0
        begin, place = first - cache.first, start - cache.first
        end, size = place + count, self.weights.head_size
        visible, hidden, chunks, room = {}, {}, [], None
        windowed = SLIDING in self.masks.kinds
        if count > MOST_ROWS or windowed:
            visible = self.masks.visible(allowed, depths, start, first)
        if count <= MOST_ROWS:
            chunks = chunks_of(start - first, depths, rows.deepest)
            groups, heads = self.weights.key_heads, self.weights.query_heads
            room = Room.of(groups, count * heads // groups, end - begin, cache.values.shape[3], chunks, cache)
            # Full layers see all committed rows, so only the columns of the rows themselves need a mask.
            hidden[FULL] = cache.kept(allowed, self._additive) if count > 1 else None
            hidden[SLIDING] = self._additive(visible[SLIDING]) if windowed else None
        return _Attended(
            count,
            visible,
            hidden,
            chunks,
            new_keys=cache.keys.narrow(3, place, count).unbind(0),
            new_values=cache.values.narrow(2, place, count).narrow(3, 0, size).unbind(0),
            keys=cache.keys.narrow(3, begin, end - begin).unbind(0),
            values=cache.values.narrow(2, begin, end - begin).unbind(0),
            room=room,
        )

    def _additive(self, seen: torch.Tensor) -> torch.Tensor:
        """0 where a row sees a key and −∞ elsewhere, for each query head of a group: [N · H / G, …]."""
        mask = torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)
        return mask.repeat_interleave(self.weights.query_heads // self.weights.key_heads, dim=0)

    def _rotations_for(self, parts: Sequence[Part]) -> Rotations:
        """Those of all rows of the parts."""
        table = self._table_for(parts)
        if len(parts) == 1 and len(parts[0].rows.tokens) == 1:
            return table.of_one(parts[0].cache.position + parts[0].rows.deepest)
        return table.at(positions_of(parts))

    def prepare_positions(self, count: int) -> None:
        """Make the rotations of so many positions now: while a text grows, each larger table is a copy."""
        self._table_up_to(min(count, self._context) - 1)

    def _table_for(self, parts: Sequence[Part]) -> Rotations:
        """One that has the positions of all rows."""
        return self._table_up_to(max(part.cache.position + part.rows.deepest for part in parts))

    def _table_up_to(self, most: int) -> Rotations:
        """One that has all positions up to this.

        It grows as it is needed, by one assignment, and is read from then on by the name that it had here,
        since runs in other threads read it and let it grow too.
        """
        table = self._rotations
        if most >= len(table.cos):
            rows = min(max(2 * len(table.cos), most + 1), max(self._context, most + 1))
            table = self._rotations = rotations(self.weights.rotary, rows, self.weights.embedding.device)
        return table


def positions_of(parts: Sequence[Part]) -> torch.Tensor:
    """Where all rows of the parts stand in their texts, [N]."""
    return _joined([part.rows.depths + part.cache.position for part in parts])


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All behind each other; a single one without a copy."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def mlp(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    """The gated MLP of a layer: [N, d] → [N, d]."""
    gate, up = layer.gate_up(x).chunk(2, dim=-1)
    return layer.down(layer.activation(gate).mul_(up))
