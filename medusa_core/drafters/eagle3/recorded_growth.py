"""A tree that grows in one recording: on a GPU a level's fifty kernels take less time than their launches.

The text's keys and values are copied to where the recorded work reads them, since a recording knows the
addresses of one memory; those of the tree stand behind them.

k nodes of a level · B slots of a bucket · d hidden size
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import torch
from torch.nn import functional as F

from medusa_core.drafters.eagle3.grow import Grown, grow, log_probabilities
from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.model.captured_forward import Record
from medusa_core.model.kv_cache import TreeLayer
from medusa_core.model.rotary import Rotations

_SMALLEST_BUCKET = 128  # slots; each next one is twice as large
_MOST = 8  # recordings kept


class TreeSize(NamedTuple):
    """What a tree grows to: guesses a node and nodes a level, levels, and drafted nodes that stay."""

    top_k: int
    levels: int
    nodes: int


@dataclass
class _Growth:
    """The buffers that recorded work reads, and what runs it."""

    size: TreeSize
    bucket: int
    keys: torch.Tensor  # [1, key heads, B + levels · k, head size]
    values: torch.Tensor
    output: torch.Tensor  # [1, d], of the root's row
    first: torch.Tensor  # [V'], log-probabilities of what follows the root
    by: Rotations  # of each level
    length: torch.Tensor  # [], rows of the text
    run: Callable[[], Grown] | None = field(default=None)

    @classmethod
    def like(
        cls,
        size: TreeSize,
        bucket: int,
        layer: TreeLayer,
        output: torch.Tensor,
        first: torch.Tensor,
        by: Rotations,
    ) -> _Growth:
        """Buffers for what is given."""
        rows = bucket + size.top_k * size.levels
        keys, values = (
            held.new_zeros(*held.shape[:2], rows, held.shape[3]) for held in (layer.keys, layer.values)
        )
        alike = Rotations(*map(torch.empty_like, by))
        length = torch.zeros((), dtype=torch.long, device=output.device)
        return cls(
            size, bucket, keys, values, torch.empty_like(output), torch.empty_like(first), alike, length
        )

    def load(
        self, layer: TreeLayer, length: int, output: torch.Tensor, first: torch.Tensor, by: Rotations
    ) -> None:
        """Copy a step's inputs to where the recorded work reads them."""
        for own, held in ((self.keys, layer.keys), (self.values, layer.values)):
            own[:, :, :length] = held[:, :, :length]
        for mine, given in zip((self.output, self.first, *self.by), (output, first, *by), strict=True):
            mine.copy_(given)
        self.length.fill_(length)


class RecordedGrowth:
    """Grows trees with one draft model. Runs in several threads take turns, since they share its buffers."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor, record: Record) -> None:
        self._model, self._embedding, self._record = model, embedding, record
        self._growths: dict[tuple[TreeSize, int], _Growth] = {}
        self._lock = Lock()

    def __call__(
        self,
        size: TreeSize,
        layer: TreeLayer,
        length: int,
        output: torch.Tensor,
        first: torch.Tensor,
        by: Rotations,
    ) -> Grown:
        """A tree behind ``length`` rows of ``layer``.

        ``output`` [1, d] is that of the root's row, ``first`` [V'] holds log-probabilities of what follows
        it, and ``by`` the rotations of all levels, a row each.
        """
        bucket = max(_SMALLEST_BUCKET, 1 << (length - 1).bit_length())
        with self._lock:
            growth = self._growths.pop((size, bucket), None)
            growth = growth or _Growth.like(size, bucket, layer, output, first, by)
            self._growths[size, bucket] = growth  # the last one is the one used last
            while len(self._growths) > _MOST:
                del self._growths[next(iter(self._growths))]
            growth.load(layer, length, output, first, by)
            if growth.run is None:
                growth.run = self._record(lambda: self._grow(growth))
            return Grown(*(tensor.clone() for tensor in growth.run()))

    def _grow(self, growth: _Growth) -> Grown:
        """The work itself: device operations of fixed shapes alone."""
        outputs, level, k = growth.output, 0, growth.size.top_k
        text = (torch.arange(growth.bucket, device=growth.length.device) < growth.length).expand(k, -1)

        def expand(tokens: torch.Tensor, rows: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            nonlocal outputs, level
            start = growth.bucket + level * k
            end, visible = start + k, torch.cat([text, seen], dim=1)

            def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
                growth.keys[:, :, start:end] = key.transpose(0, 1)[None]
                growth.values[:, :, start:end] = value.transpose(0, 1)[None]
                mixed = F.scaled_dot_product_attention(
                    query.transpose(0, 1)[None],
                    growth.keys[:, :, :end],
                    growth.values[:, :, :end],
                    visible,
                    enable_gqa=True,
                )
                return mixed[0].transpose(0, 1).flatten(1)

            features = outputs[rows] if level else outputs.expand(k, -1)
            by = Rotations(*(turn[level : level + 1] for turn in growth.by))
            embedded = F.embedding(self._model.target_tokens(tokens), self._embedding)
            outputs, level = self._model.output(embedded, features, by, attend), level + 1
            return log_probabilities(self._model.logits(outputs))

        return grow(growth.first, expand, *growth.size)
