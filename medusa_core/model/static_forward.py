"""A forward as a graph can capture it: fixed shapes and addresses, no host reads.

What differs between two steps lies on the device: tokens, depths, the tree's mask and the number of committed
rows are copied into buffers, rows are padded to a few sizes, and attention reads a bucket of slots, of which
the mask leaves those of the text. So a step is the same list of kernels at the same addresses each time;
``record`` may capture that list once and replay it. Parts of a prompt are read as they come, without a
recording. What is computed is that of ``static_model``.

N rows, padded · B slots of a bucket
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from medusa_core.errors import MedusaError
from medusa_core.model.features import Features
from medusa_core.model.forward import Outputs, Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.masks import SLIDING, LayerMasks
from medusa_core.model.static_cache import BufferPool, Buffers, LayerShape, StaticCache

SIZES = (1, 4, 8, 16, 32, 64, 128, 256)  # rows of a verified tree, padded
_SMALLEST_BUCKET = 128  # slots; each next one is twice as large

Result = TypeVar("Result")


class Record(Protocol):
    """Records work that keeps to what a graph can hold; what it returns runs the same work again."""

    def __call__(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Its results may lie at addresses that the next call overwrites."""


def not_recorded(work: Callable[[], Result]) -> Callable[[], Result]:
    """Where nothing can be captured the work itself is called each time."""
    return work


@dataclass
class _Step:
    """One padded size over one bucket: the buffers it reads, and what runs it."""

    rows: Rows
    length: torch.Tensor  # [], committed rows
    position: torch.Tensor  # [], of the root in the text
    run: Callable[[], Outputs] | None = None  # recorded at the first step
    shape: torch.Tensor | None = None  # the mask that was copied last: trees keep theirs from step to step

    def load(self, rows: Rows, length: int, position: int) -> None:
        """Copy the step's inputs to where the recorded work reads them."""
        count = len(rows.tokens)
        self.rows.tokens[:count].copy_(rows.tokens)
        self.length.fill_(length)
        self.position.fill_(position)
        if rows.allowed is not self.shape:
            self.shape = rows.allowed
            pad(self.rows, rows.depths, rows.allowed)


def padded_size(count: int) -> int | None:
    """The rows that ``count`` are padded to; None where they are more than any tree has."""
    return next((size for size in SIZES if size >= count), None)


def empty_rows(size: int, features: Features, device: torch.device) -> Rows:
    """Rows whose tensors a recorded step reads: what they hold is copied in."""
    return Rows(
        torch.zeros(size, dtype=torch.long, device=device),
        torch.zeros(size, dtype=torch.long, device=device),
        0,  # depths are copied in, so what is deepest is not known
        torch.eye(size, dtype=torch.bool, device=device),
        features=features,
    )


def pad(rows: Rows, depths: torch.Tensor, allowed: torch.Tensor) -> None:
    """Write the shape of a tree into ``rows``, which may be more."""
    count = len(depths)
    rows.depths.zero_()[:count].copy_(depths)
    # A padded row attends to itself, since a softmax over no key is NaN; no other row attends to it.
    rows.allowed.zero_().fill_diagonal_(True)[:count, :count].copy_(allowed)


class StaticForward(ABC):
    """The ``Forward`` of a device whose kernels can be recorded."""

    def __init__(
        self,
        shapes: Sequence[LayerShape | None],
        masks: LayerMasks,
        device: torch.device,
        record: Record = not_recorded,
    ) -> None:
        """``shapes`` are what each layer keeps of a row."""
        self.record = record
        self._masks, self._device = masks, device
        self._pool = BufferPool(shapes, device)

    @abstractmethod
    def compute(
        self, rows: Rows, length: torch.Tensor, position: torch.Tensor, buffers: Buffers, bucket: int
    ) -> Outputs:
        """The forward itself: device operations of fixed shapes alone.

        ``length`` [] are the committed rows and ``position`` [] where the first of these stands in the text.
        """

    def new_cache(self, slots: int) -> StaticCache:
        """A cache for one run, with room for the rows that pad a tree."""
        return StaticCache(self._pool, slots, SIZES[-1])

    copied_bytes = 0

    def cache_bytes(self, slots: int) -> int:
        """As ``Forward``: buffers have a power of two of rows, and keep those outside of a window too."""
        return self._pool.bytes_for(slots + SIZES[-1])

    def __call__(self, rows: Rows, cache: TreeCache) -> Outputs:
        """As ``Forward``; what it returns for a tree is valid until the next tree."""
        if not isinstance(cache, StaticCache):
            raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
        count, start = len(rows.tokens), cache.length
        size = padded_size(count)
        if rows.kept or size is None or start + size > cache.buffers.slots:
            length, position = (torch.full((), at, device=self._device) for at in (start, cache.position))
            return self.compute(rows, length, position, cache.buffers, start + count)
        buffers, bucket = cache.buffers, self.bucket(start + size, cache.buffers.slots)
        step = self._step(buffers, size, bucket, rows.features)
        step.load(rows, start, cache.position)
        if step.run is None:
            # Recording runs the work: with this step's rows it writes where this step writes.
            step.run = self.record(
                lambda: self.compute(step.rows, step.length, step.position, buffers, bucket)
            )
        logits, states = step.run()
        return logits[:count], [state[:count] for state in states]

    def together(self, parts: Sequence[Part]) -> list[Outputs]:
        """As ``Forward``, one after the other: what was recorded for one sequence knows its buffers alone."""
        return [self(part.rows, part.cache) for part in parts]

    def bucket(self, needed: int, slots: int) -> int:
        """The slots that attention reads where ``needed`` are used."""
        bucket = _SMALLEST_BUCKET
        while bucket < needed:
            bucket *= 2
        return min(bucket, slots)

    def _step(self, buffers: Buffers, size: int, bucket: int, features: Features) -> _Step:
        key = size, bucket, features
        if key not in buffers.captured:
            rows = empty_rows(size, features, self._device)
            counts = torch.zeros(2, dtype=torch.long, device=self._device)
            buffers.captured[key] = _Step(rows, counts[0], counts[1])
        return buffers.captured[key]

    def visible(self, rows: Rows, length: torch.Tensor, bucket: int) -> dict[str, torch.Tensor]:
        """Which rows see which slots, by kind of layer: bool [N, B]."""
        count = len(rows.tokens)
        slot = torch.arange(bucket, device=self._device)
        behind = slot - length  # a row of this forward where it is 0 to N − 1
        node = behind.clamp(0, count - 1)
        in_tree = (behind >= 0) & (behind < count)
        full = (behind < 0) | (in_tree & rows.allowed.index_select(1, node))
        visible = dict.fromkeys(self._masks.kinds, full)
        if SLIDING in visible and self._masks.window is not None:
            position = torch.where(in_tree, length + rows.depths[node], slot)
            own = length + rows.depths
            visible[SLIDING] = full & (position > own[:, None] - self._masks.window)
        return visible
