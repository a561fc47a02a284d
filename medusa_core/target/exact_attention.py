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

from collections.abc import Callable
from dataclasses import dataclass

import torch

CHUNK = 128  # positions
MOST_ROWS = 256  # of a forward: those of a tree and a chunk are summed at once
WEIGHTS_BYTES = 16 * 2**20  # of attention at once: glibc gives larger blocks back and has them cleared anew
ONES = 16  # columns of a value row behind its D numbers: a one, and zeros that keep rows aligned
_FEWEST = 16  # keys a sum: torch has a kernel of its own for tiny products, which rounds otherwise


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
    def is_whole(self) -> bool:
        """Whether all of its keys count in it."""
        return self.skip == 0 and self.keep is None


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


@dataclass(frozen=True)
class Room:
    """Memory for the attention weights of a block of rows, which every layer uses again."""

    weights: torch.Tensor  # [G, M, S]
    parts: list[torch.Tensor]  # of the chunks, in their order

    @classmethod
    def of(
        cls,
        groups: int,
        rows: int,
        slots: int,
        chunks: list[Chunk],
        buffer: Callable[[int, int], torch.Tensor] = torch.empty,
    ) -> Room:
        """Room for M rows, or behind a long text for so many that their weights stay below WEIGHTS_BYTES.

        ``buffer`` gives memory for so many rows on so many keys.
        """
        if rows < 3:  # BLAS has another kernel for one row, torch one for tiny products
            rows *= 4 // rows
        most = max(_FEWEST, WEIGHTS_BYTES // (groups * slots * torch.float32.itemsize))
        rows = min(rows, most)
        return cls._of(buffer(groups * rows, slots).view(groups, rows, slots), chunks)

    @classmethod
    def _of(cls, weights: torch.Tensor, chunks: list[Chunk]) -> Room:
        return cls(weights, [weights.narrow(2, chunk.start, chunk.end - chunk.start) for chunk in chunks])

    def first(self, rows: int, chunks: list[Chunk]) -> Room:
        """That of a smaller block."""
        return self._of(self.weights[:, :rows], chunks)


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
    room = Room.of(len(query), rows, keys.shape[2], chunks) if room is None else room
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
        weights[:, :rows, weights.shape[2] - mask.shape[1] :].add_(mask)
    weights.sub_(weights.amax(-1, True)).exp_()
    total = None
    for chunk, part in zip(chunks, room.parts, strict=True):
        counted = part if chunk.is_whole else _without_others(part, chunk)
        seen = values if len(chunks) == 1 else values.narrow(1, chunk.start, chunk.end - chunk.start)
        total = torch.bmm(counted, seen) if total is None else total.baddbmm_(counted, seen)
    assert total is not None  # a row attends to itself at least
    return total if most == rows else total[:, :rows]


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
    row alone behind its ancestors.
    """
    generator = torch.Generator().manual_seed(0)
    length, parents = CHUNK - 2, [-1, *(node // 2 for node in range(15))]
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
