"""A key-value cache that can hold a tree and keep one path of it.

Rows are written behind the committed ones; ``commit`` keeps the rows of the accepted path and forgets the
rest. A row may move to another slot because its key was rotated by its position, committed length + depth,
not by its slot. Allocated once for a run. Knows nothing about trees beyond row numbers. Paper §2.1.2.

S slots · [1, kv_heads, S, head_dim] a layer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from medusa_core.errors import MedusaError

_FEWEST = 256  # rows of a cache with padding


class Place(NamedTuple):
    """Where a captured forward writes and reads: what varies lies on the device."""

    length: torch.Tensor  # [], committed rows
    slots: torch.Tensor  # [N], of the new rows
    bucket: int  # slots that are read, which the mask knows


class TreeLayer(CacheLayerMixin):
    """Keys and values of one decoder layer, all S slots allocated at the first write."""

    keys: torch.Tensor
    values: torch.Tensor
    _held: list[torch.Tensor]

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.length = 0
        self.place: Place | None = None  # during a captured forward

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate with the shape, dtype and device of the first keys and values."""
        alike = (key_states.shape, key_states.dtype) == (value_states.shape, value_states.dtype)
        both = [key_states.expand(2, *key_states.shape)] if alike else [key_states, value_states]
        self._hold(both, 0)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def _hold(self, before: Sequence[torch.Tensor], count: int) -> None:
        """Allocate like ``before``, with its first ``count`` rows. Keys and values of one shape lie together.

        Rows of both then move at once: on a GPU a commit's time is that of its launches.
        """
        self._held = [old.new_zeros(*old.shape[:-2], self.slots, old.shape[-1]) for old in before]
        for new, old in zip(self._held, before, strict=True):
            new[..., :count, :] = old[..., :count, :]
        self.keys, self.values = self._held[0] if len(self._held) == 1 else self._held

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write rows behind the committed ones; return views of committed and new rows."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.place is not None:
            self.keys.index_copy_(2, self.place.slots, key_states)
            self.values.index_copy_(2, self.place.slots, value_states)
            return self.keys[:, :, : self.place.bucket], self.values[:, :, : self.place.bucket]
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, slots: torch.Tensor | None, count: int) -> None:
        """Commit ``count`` of the rows written last: the first ones, or those in ``slots``."""
        # A layer that reads the keys of another one was never written.
        if slots is not None and self.is_initialized:
            source = slots.to(self.device)
            for held in self._held:
                # Indexing copies before it is assigned, so overlapping source and target are safe.
                held[..., self.length : self.length + count, :] = held[..., source, :]
        self.length += count

    def take(self, other: TreeLayer, rows: torch.Tensor, start: int) -> None:
        """Copy ``rows`` [kv_heads, R] of another layer, each head its own, to the slots from ``start`` on."""
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        slots = slice(start, start + rows.shape[1])
        for own, its in ((self.keys, other.keys), (self.values, other.values)):
            own[:, :, slots] = its.gather(2, rows[None, :, :, None].expand(1, -1, -1, its.shape[3]))

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; the committed ones are copied."""
        grows = slots > self.slots
        self.slots = max(slots, self.slots)
        if grows and self.is_initialized:
            self._hold(self._held, self.length)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width of the mask and its offset, as transformers asks for them."""
        return self.place.bucket if self.place else self.length + query_length, 0

    def get_seq_length(self) -> Any:
        """Committed rows; on the device in a captured forward, where a host's number would never change."""
        return self.place.length if self.place else self.length

    def get_max_length(self) -> int:
        """Slots S."""
        return self.place.bucket if self.place else self.slots

    def reset(self) -> None:
        """Forget every row; the memory stays."""
        self.length = 0

    def clear(self) -> None:
        """Set all slots to 0, since those of a run that overflowed hold NaN, which no mask removes.

        A masked key may only have −∞ added to its score, and a masked value is multiplied by 0.
        """
        if self.is_initialized:
            # Memory that was allocated in inference mode can only be written in it.
            with torch.inference_mode():
                for held in self._held:
                    held.zero_()


class TreeCache(Cache):
    """The cache of one run: ``layers`` layers of ``slots`` rows."""

    def __init__(self, layers: int | Sequence[TreeLayer], slots: int, padding: int = 0) -> None:
        """``layers`` may be those of an earlier cache, whose rows are forgotten.

        With ``padding`` so many more rows than ``slots`` can be written, and never committed; the number of
        rows is a power of two then, so that a growing text moves seldom.
        """
        self.slots, self.padding = slots, padding
        self.left_out = 0  # rows of the text that it does not hold (``partial_cache``)
        if isinstance(layers, int):
            layers = [TreeLayer(padded_rows(slots, padding)) for _ in range(layers)]
        self.tree_layers = list(layers)
        for layer in self.tree_layers:
            layer.reset()
        super().__init__(layers=list(self.tree_layers))

    @property
    def length(self) -> int:
        """Committed rows, the same in every layer."""
        return self.tree_layers[0].length

    @property
    def position(self) -> int:
        """The position of the next row in the text."""
        return self.length + self.left_out

    @property
    def room(self) -> int:
        """Rows that can still be written."""
        return self.slots - self.length

    @property
    def bounded(self) -> bool:
        """Whether it drops the rows that no layer sees any more."""
        return False

    @property
    def nbytes(self) -> int:
        tensors = [tensor for layer in self.tree_layers for tensor in (layer.keys, layer.values)]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def require(self, rows: int) -> None:
        """Raise MedusaError when ``rows`` more rows do not fit."""
        if rows > self.room:
            raise MedusaError(
                f"{rows} rows do not fit: {self.length} of {self.slots} cache slots are used; "
                "shorten the prompt or lower the token budget"
            )

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` [A], counted from the first row of the last write, in path order."""
        count = len(path)
        in_place = list(path) == list(range(count))
        # One tensor for all layers; layers on other devices copy it.
        rows = [self.length + row for row in path]
        slots = None if in_place else torch.tensor(rows, device=self.tree_layers[0].keys.device)
        for layer in self.tree_layers:
            layer.keep(slots, count)

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on, for a text that goes on differently; the memory stays."""
        for layer in self.tree_layers:
            layer.length = min(layer.length, length)

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` rows in all; committed rows stay."""
        for layer in self.tree_layers:
            layer.reserve(padded_rows(slots, self.padding))
        self.slots = max(slots, self.slots)


def padded_rows(slots: int, padding: int) -> int:
    """Rows that a ``TreeCache`` has memory for."""
    return max(_FEWEST, 1 << (slots + padding - 1).bit_length()) if padding else slots
