"""Attention whose result for a node does not depend on how many rows run with it or where its keys lie.

Greedy Medusa gives plain decoding's tokens only if a node of a tree gets the very bits that its token gets
alone. Two things differ between the two: the number of rows, and the slots of the node's ancestors, between
which a tree has keys that the node does not see. Such a key has weight exactly 0, and adding 0 · v changes
no sum. So it is enough that a sum is made term by term in the order of the slots: then both add the same
numbers in the same order. BLAS does that in float32 for two rows and more, if neither matrix is transposed
and the sum has at most some 384 terms; longer ones it parts in places of its own choice, so the keys are
taken in chunks of ``CHUNK`` positions here, and the chunks' sums are added in order. The denominator of the
softmax comes out of the same product, as one more column of ones among the values. ``sums_in_order``
measures whether the BLAS of this machine keeps to it.

N rows of a forward · G key-value heads · H query heads for each · M = N · H · D head size · S keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

CHUNK = 128  # positions
MOST_ROWS = 256  # of a forward: those of a tree and a chunk are summed at once
WEIGHTS_BYTES = 16 * 2**20  # of attention at once: glibc gives larger blocks back and has them cleared anew
ONES = 16  # columns of a value row behind its D numbers: a one, and zeros that keep rows aligned
_FEWEST = 16  # keys a sum: torch has a kernel of its own for tiny products, which rounds otherwise
_JOINT = 8  # full chunks of each key-value head from which their products are faster as one batch
_AT_ONCE = 32  # chunks of such a batch at most
SUMS_BYTES = 8 * 2**20  # of the sums of such a batch
_PACKED_BYTES = 4 * 2**20  # that BLAS takes for itself in such a batch
_SEVERAL = 4  # rows that stand for a single one: BLAS has another kernel for one, torch one for tiny products


@dataclass(frozen=True)
class Chunk:
    """Keys ``start`` to ``end`` of one sum; the first ``skip`` of them count in the chunk before.

    ``keep`` [N] is 0 for rows of the forward that belong to another chunk.
    """

    start: int
    end: int
    skip: int = 0
    keep: torch.Tensor | None = None

    @property
    def keys(self) -> int:
        """How many it spans."""
        return self.end - self.start

    @property
    def is_whole(self) -> bool:
        """Whether all of its keys count in it."""
        return self.skip == 0 and self.keep is None

    @property
    def is_full(self) -> bool:
        """Whether it is one of committed keys that will not change any more."""
        return self.is_whole and self.keys == CHUNK


def chunks_of(length: int, depths: torch.Tensor, deepest: int) -> list[Chunk]:
    """The chunks of ``length`` committed keys and the N rows behind them, by position: length + depth.

    ``deepest`` is the largest of ``depths``.
    """
    first, last = length // CHUNK, (length + deepest) // CHUNK
    chunks = [Chunk(start * CHUNK, (start + 1) * CHUNK) for start in range(first)]
    end = length + len(depths)
    if first == last:
        return [*chunks, _wide_enough(first * CHUNK, end)]
    # Rows lie in the order of the tree's nodes, so those of two chunks lie among each other.
    belongs = (depths + length) // CHUNK
    for number in range(first, last + 1):
        start = first * CHUNK if number == first else length
        chunks.append(_wide_enough(start, end, (belongs == number).float()))
    return chunks


def _wide_enough(start: int, end: int, keep: torch.Tensor | None = None) -> Chunk:
    skip = min(start, _FEWEST) if end - start < _FEWEST else 0
    return Chunk(start - skip, end, skip, keep)


class Memory(Protocol):
    """What attention works in. Blocks that each call asked for anew would leave gaps in the heap."""

    def buffer(self, rows: int, keys: int) -> torch.Tensor:
        """Room for the attention weights of so many rows on so many keys: [rows · keys]."""
        ...

    def sums(self) -> torch.Tensor:
        """Room for the sums of a batch of chunks: SUMS_BYTES in float32."""
        ...


class _Fresh:
    """Memory for one call."""

    def buffer(self, rows: int, keys: int) -> torch.Tensor:
        return torch.empty(rows * keys)

    def sums(self) -> torch.Tensor:
        return torch.empty(SUMS_BYTES // torch.float32.itemsize)


@dataclass(frozen=True)
class Room:
    """Memory for the attention of a block of rows, which every layer uses again."""

    weights: torch.Tensor  # [G, M, S]
    joint: int  # chunks from the first on that are multiplied as a batch
    parts: list[torch.Tensor]  # of the other chunks, in their order
    sums: torch.Tensor | None  # for the batch

    @classmethod
    def of(
        cls,
        groups: int,
        rows: int,
        slots: int,
        columns: int,
        chunks: list[Chunk],
        memory: Memory | None = None,
    ) -> Room:
        """Room for M rows, or behind a long text for so many that their weights stay below WEIGHTS_BYTES.

        ``columns`` are those of a value row, D + ONES.
        """
        memory = memory or _Fresh()
        rows = min(_or_several(rows), _most_rows(groups, slots))
        weights = memory.buffer(groups * rows, slots).view(groups, rows, slots)
        full = next((number for number, chunk in enumerate(chunks) if not chunk.is_full), len(chunks))
        if full < _JOINT * groups or not _chunks_at_once(rows, columns):
            return cls._of(weights, 0, None, chunks)
        return cls._of(weights, full, memory.sums(), chunks)

    @classmethod
    def _of(cls, weights: torch.Tensor, joint: int, sums: torch.Tensor | None, chunks: list[Chunk]) -> Room:
        parts = [weights.narrow(2, chunk.start, chunk.keys) for chunk in chunks[joint:]]
        return cls(weights, joint, parts, sums)

    def first(self, rows: int, chunks: list[Chunk]) -> Room:
        """That of a smaller block."""
        return self._of(self.weights[:, : _or_several(rows)], self.joint, self.sums, chunks)


def _or_several(rows: int) -> int:
    return rows if rows >= 3 else _SEVERAL // rows * rows


def _most_rows(groups: int, slots: int) -> int:
    """Rows of a block."""
    return max(_FEWEST, WEIGHTS_BYTES // (groups * slots * torch.float32.itemsize))


def _chunks_at_once(rows: int, columns: int) -> int:
    """Chunks of a batch, for whose sums, what is added to them and what comes out there is memory."""
    places = SUMS_BYTES // (rows * columns * torch.float32.itemsize)
    return max(0, min(_AT_ONCE, places - 1 - _SEVERAL))


def attention_bytes(groups: int, rows: int, slots: int) -> int:
    """What the attention of M rows takes as the keys come to be S: its weights, and sums of chunks."""
    weights = groups * min(rows, _most_rows(groups, slots)) * slots * torch.float32.itemsize
    return weights + (SUMS_BYTES + _PACKED_BYTES if slots >= _JOINT * groups * CHUNK else 0)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    chunks: list[Chunk],
    scale: float,
    room: Room | None = None,
) -> torch.Tensor:
    """Attention in float32 with its denominator: Σ w·v, and Σ w in column D: [G, M, D + ONES].

    query [G, M, D] · keys [G, D, S] · values [G, S, D + ONES] · mask: 0 or −∞ for the last keys [M, ≤ S].
    Without ``room`` a call makes its own.
    """
    rows = query.shape[1]
    if room is None:
        room = Room.of(len(query), rows, keys.shape[2], values.shape[2], chunks)
    weights = room.weights
    if (most := weights.shape[1]) < rows:
        parts = query.split(most, dim=1)
        masks = [None] * len(parts) if mask is None else mask.split(most)
        rooms = [room if part.shape[1] == most else room.first(part.shape[1], chunks) for part in parts]
        blocks = zip(parts, masks, rooms, strict=True)
        return torch.cat(
            [attend(part, keys, values, seen, chunks, scale, own) for part, seen, own in blocks], dim=1
        )
    if most > rows:
        query = query.repeat(1, most // rows, 1)
    weights.baddbmm_(query, keys, beta=0, alpha=scale)  # β = 0: what lies there is not read
    if mask is not None:
        columns = mask.shape[1]
        weights.narrow(1, 0, rows).narrow(2, weights.shape[2] - columns, columns).add_(mask)
    weights.sub_(weights.amax(-1, True)).exp_()
    total = None if room.sums is None else _joint_sums(weights, values, room.joint, room.sums)
    for chunk, part in zip(chunks[room.joint :], room.parts, strict=True):
        counted = part if chunk.is_whole else _without_others(part, chunk)
        seen = values if len(chunks) == 1 else values.narrow(1, chunk.start, chunk.keys)
        total = torch.bmm(counted, seen) if total is None else total.baddbmm_(counted, seen)
    assert total is not None  # a row attends to itself at least
    return total if most == rows else total[:, :rows]


def _joint_sums(
    weights: torch.Tensor, values: torch.Tensor, count: int, memory: torch.Tensor
) -> torch.Tensor:
    """The sums of the first ``count`` chunks, all of them full, with the bits that one after another has.

    A product with ones adds the chunks' sums in their order.
    """
    rows, columns = weights.shape[1], values.shape[2]
    size, at_once = rows * columns, _chunks_at_once(rows, columns)
    parts = memory[: (1 + at_once) * size].view(1 + at_once, rows, columns)  # the first: what came before
    totals = memory[len(parts) * size :][: _SEVERAL * size].view(_SEVERAL, size)
    sums = []
    for own_weights, own_values in zip(weights, values, strict=True):
        parts[0].zero_()
        for first in range(0, count, at_once):
            some = min(at_once, count - first)
            keys = slice(first * CHUNK, (first + some) * CHUNK)
            left = own_weights[:, keys].view(rows, some, CHUNK).transpose(0, 1)
            torch.bmm(left, own_values[keys].view(some, CHUNK, columns), out=parts[1 : 1 + some])
            ones = parts.new_ones(_SEVERAL, 1 + some)
            torch.mm(ones, parts[: 1 + some].view(1 + some, size), out=totals)
            parts[0].copy_(totals[0].view(rows, columns))
        sums.append(totals[0].view(rows, columns).clone())
    return torch.stack(sums)


def _without_others(weights: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """The weights [G, M, keys of the chunk], 0 where a key counts in another chunk."""
    part = weights.clone()
    part[:, :, : chunk.skip] = 0
    if chunk.keep is not None:
        part[:, :, part.shape[2] - len(chunk.keep) :].mul_(chunk.keep)
    return part


def sums_in_order(groups: int, heads: int, size: int) -> bool:
    """Whether a node of a tree gets the bits of its branch alone on this machine, for G, H and D.

    A tree of 16 nodes is laid across the border of a chunk, and each of its nodes is compared with the same
    row alone behind its ancestors: behind a short text, and where the row alone has a chunk more than the
    tree and so the first batch of them.
    """
    return _same_sums(groups, heads, size, CHUNK - 2) and _same_sums(1, heads, size, _JOINT * CHUNK - 2)


def _same_sums(groups: int, heads: int, size: int, length: int) -> bool:
    """The same for a tree behind ``length`` committed rows."""
    generator = torch.Generator().manual_seed(0)
    parents = [-1, *(node // 2 for node in range(15))]
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents[1:], start=1):
        seen[node] |= seen[parent]
    depths = seen.sum(dim=1) - 1
    slots = length + len(parents)
    query = torch.randn(len(parents), groups, heads, size, generator=generator)
    keys = torch.randn(groups, size, slots, generator=generator)
    values = torch.randn(groups, slots, size + ONES, generator=generator)
    values[..., size:] = torch.eye(ONES)[0]
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf).repeat_interleave(heads, dim=0)
    rows = query.permute(1, 0, 2, 3).reshape(groups, -1, size)
    scale = size**-0.5
    tree = attend(rows, keys, values, mask, chunks_of(length, depths, int(depths.max())), scale)
    for node in range(len(parents)):
        path = torch.cat([torch.arange(length), length + seen[node].nonzero()[:, 0]])
        chunks = chunks_of(len(path) - 1, depths[:1], 0)
        alone = attend(query[node], keys[..., path], values[:, path], None, chunks, scale)
        if not torch.equal(alone, tree[:, node * heads : (node + 1) * heads]):
            return False
    return True
