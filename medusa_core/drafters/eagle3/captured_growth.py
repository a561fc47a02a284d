"""A tree that grows in one CUDA graph: on a GPU a level's fifty kernels take less time than their launches.

The text's keys and values are copied to where the captured work reads them, since a graph knows the
addresses of one memory; those of the tree stand behind them.

k nodes of a level · B slots of a bucket · d hidden size · V' draft vocabulary
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import torch
from torch.nn import functional as F

from medusa_core.drafters.eagle3.grow import Grown, grow, log_probabilities
from medusa_core.drafters.eagle3.model import DraftModel, attention_by
from medusa_core.errors import reason_of
from medusa_core.model.captured_forward import Capture, bucket_of, capture_checked
from medusa_core.model.kv_cache import TreeLayer
from medusa_core.model.rotary import Rotations

_log = logging.getLogger(__name__)

_MOST = 4  # graphs kept, each with keys and values of its own


class TreeSize(NamedTuple):
    """What a tree grows to: guesses a node and nodes a level, levels, and drafted nodes that stay."""

    top_k: int
    levels: int
    nodes: int


class Start(NamedTuple):
    """What a tree grows from, after ``length`` rows of the text in ``layer``."""

    layer: TreeLayer
    length: int
    output: torch.Tensor  # [1, d], of the root's row
    first: torch.Tensor  # [V'], log-probabilities of what follows the root
    by: Rotations  # of each level, a row each


@dataclass
class _Growth:
    """The buffers that captured work reads, and what runs it."""

    size: TreeSize
    bucket: int
    keys: torch.Tensor  # [1, key heads, B + levels · k, head size]
    values: torch.Tensor
    output: torch.Tensor
    first: torch.Tensor
    by: Rotations
    length: torch.Tensor  # [], rows of the text
    run: Callable[[], Grown] | None = None

    @classmethod
    def like(cls, size: TreeSize, bucket: int, start: Start) -> _Growth:
        """Buffers for such a start."""
        rows, layer = bucket + size.top_k * size.levels, start.layer
        keys, values = (
            held.new_zeros(*held.shape[:2], rows, held.shape[3]) for held in (layer.keys, layer.values)
        )
        output, first, *by = map(torch.empty_like, (start.output, start.first, *start.by))
        length = torch.zeros((), dtype=torch.long, device=output.device)
        return cls(size, bucket, keys, values, output, first, Rotations(*by), length)

    def load(self, start: Start) -> None:
        """Copy a step's inputs to where the captured work reads them."""
        layer, length = start.layer, start.length
        self.keys[:, :, :length] = layer.keys[:, :, :length]
        self.values[:, :, :length] = layer.values[:, :, :length]
        # No mask removes NaN from a slot that no row sees: a score has −∞ added, a value the weight 0.
        self.keys[:, :, length : self.bucket] = 0
        self.values[:, :, length : self.bucket] = 0
        given = (start.output, start.first, *start.by)
        for mine, one in zip((self.output, self.first, *self.by), given, strict=True):
            mine.copy_(one)
        self.length.fill_(length)


class CapturedGrowth:
    """Grows trees with one draft model. Runs in several threads take turns, since they share its buffers."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor, capture: Capture) -> None:
        self._model, self._embedding, self._capture = model, embedding, capture
        self._growths: dict[tuple[TreeSize, int], _Growth] = {}
        self._lock = Lock()
        self.works = True  # until a capture has failed

    def __call__(self, size: TreeSize, start: Start) -> Grown | None:
        """A tree, or None where it cannot be captured."""
        bucket = bucket_of(start.length)
        with self._lock:
            growth = self._growths.pop((size, bucket), None) or _Growth.like(size, bucket, start)
            growth.load(start)
            if growth.run is None:
                try:
                    growth.run = capture_checked(lambda: self._grow(growth), self._capture)
                except RuntimeError as error:  # such as a host read, or no memory for it
                    _log.info("The drafter's trees are not captured: %s", reason_of(error))
                    self.works = False
                    self._growths.clear()
                    return None
            self._growths[size, bucket] = growth  # the last one is the one used last
            while len(self._growths) > _MOST:
                del self._growths[next(iter(self._growths))]
            return Grown(*(tensor.clone() for tensor in growth.run()))

    def _grow(self, growth: _Growth) -> Grown:
        """The work itself: device operations of fixed shapes alone."""
        outputs, level, k = growth.output, 0, growth.size.top_k
        text = (torch.arange(growth.bucket, device=growth.length.device) < growth.length).expand(k, -1)

        def expand(tokens: torch.Tensor, rows: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            nonlocal outputs, level
            start = growth.bucket + level * k
            end, visible = start + k, torch.cat([text, seen], dim=1)

            def write(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                growth.keys[:, :, start:end], growth.values[:, :, start:end] = key, value
                return growth.keys[:, :, :end], growth.values[:, :, :end]

            features = outputs[rows] if level else outputs.expand(k, -1)
            by = Rotations(*(turn[level : level + 1] for turn in growth.by))
            embedded = F.embedding(self._model.target_tokens(tokens), self._embedding)
            outputs = self._model.output(embedded, features, by, attention_by(write, visible))
            level += 1
            return log_probabilities(self._model.logits(outputs))

        return grow(growth.first, expand, *growth.size)
