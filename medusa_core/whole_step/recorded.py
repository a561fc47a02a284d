"""A whole greedy step as one list of kernels: what a graph of the device holds, with one read by the host.

Phase by phase a step launches its forward as a graph, and the heads, the choice of the path and the move of
its rows one by one.

N nodes · M rows, padded · D depth of the tree · V vocabulary · F·d numbers of features a row
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from medusa_core.acceptance.match import matched
from medusa_core.drafters import DeviceDrafter, Drafter
from medusa_core.errors import is_out_of_memory, reason_of
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.static_cache import Buffers, StaticCache
from medusa_core.model.static_forward import StaticForward, empty_rows, pad, padded_size
from medusa_core.model.target import Target, side_by_side
from medusa_core.trees.token_tree import TokenTree
from medusa_core.whole_step.judged import Judged, NotRecordedError


class RecordedStep:
    """As ``WholeStep``."""

    def __init__(self, forward: StaticForward, drafter: DeviceDrafter, shape: TokenTree, size: int) -> None:
        """``shape`` is that of the drafter's trees, ``size`` what their nodes are padded to."""
        self._forward, self._drafter = forward, drafter
        self._shape, self._size = shape, size
        self._key = "whole step", drafter.recorded_as
        self._features: torch.Tensor | None = None  # [1, F·d] of the last accepted token
        self._known: tuple[_OnDevice, int, int] | None = None  # what is ready behind which rows and root

    @classmethod
    def of(cls, target: Target, drafter: Drafter) -> RecordedStep | None:
        """None where the tree needs the host, or the forward cannot be recorded."""
        if not isinstance(drafter, DeviceDrafter):
            return None
        forward = target.own_forward
        if not isinstance(forward, StaticForward) or not forward.records_steps:
            return None
        shape = drafter.shape
        size = padded_size(shape.size)
        return None if size is None else cls(forward, drafter, shape, size)

    def follow(self, features: torch.Tensor) -> None:
        """As ``WholeStep``."""
        self._features, self._known = features, None

    def fits(self, cache: TreeCache, depth_left: int) -> bool:
        """As ``WholeStep``."""
        return (
            isinstance(cache, StaticCache)
            and self._features is not None
            and max(self._shape.depths) <= depth_left
            and cache.length + self._size <= cache.buffers.slots
        )

    def __call__(self, cache: TreeCache, root: int) -> Judged:
        """As ``WholeStep``."""
        assert isinstance(cache, StaticCache)
        assert self._features is not None
        device = self._on_device(cache.buffers)
        if self._known != (device, cache.length, root):
            device.begin(root, self._features)
        made = device.run(cache)
        tokens, choices = made.report.tolist()
        verdict = matched(device.tree, tokens, choices)
        self._known = device, cache.length + len(verdict.path), verdict.bonus
        return Judged(device.tree, made.logits, made.logits, made.features, verdict)

    def _on_device(self, buffers: Buffers) -> _OnDevice:
        if self._key not in buffers.captured:
            made = _OnDevice(self._forward, self._drafter, self._shape, self._size, buffers)
            buffers.captured[self._key] = made
        found: _OnDevice = buffers.captured[self._key]
        return found


@dataclass(frozen=True)
class _Made:
    """What a step leaves on the device."""

    logits: torch.Tensor  # [N, V]
    features: torch.Tensor  # [N, F·d]
    report: torch.Tensor  # [2, N]: the nodes' tokens, and those chosen behind them
    tokens: torch.Tensor  # [N], of the next tree
    draft_logp: torch.Tensor  # [N], of these


class _OnDevice:
    """The steps of one shape over one place in memory: what they read, and what was recorded of them."""

    def __init__(
        self,
        forward: StaticForward,
        drafter: DeviceDrafter,
        shape: TokenTree,
        size: int,
        buffers: Buffers,
    ) -> None:
        self._forward, self._drafter, self._buffers = forward, drafter, buffers
        device = buffers.device
        self._count = shape.size
        self._rows = empty_rows(size, drafter.features, device)
        depths = torch.tensor(shape.depths, device=device)
        pad(self._rows, depths, shape.mask)
        self._length, self._position = torch.zeros(2, dtype=torch.long, device=device)
        self._parents = torch.tensor([max(parent, 0) for parent in shape.parents], device=device)
        self._depths, self._mask = depths, shape.mask
        self._paths = torch.tensor(_paths(shape), device=device)
        self._next: tuple[torch.Tensor, torch.Tensor] | None = None
        self._recorded: dict[int, Callable[[], tuple[torch.Tensor, ...]]] = {}
        self.tree = replace(
            shape, tokens=self._rows.tokens[: shape.size], draft_logp=torch.zeros_like(shape.draft_logp)
        )

    def begin(self, root: int, features: torch.Tensor) -> None:
        """The next tree is that below ``root``, behind ``features`` [1, F·d]."""
        self._next = self._drafter.guess(self._rows.tokens.new_full((1,), root), features)

    def run(self, cache: StaticCache) -> _Made:
        """Make the step of the next tree behind the committed rows."""
        assert self._next is not None
        tokens, draft_logp = self._next
        self._rows.tokens[: self._count].copy_(tokens)
        self.tree.draft_logp.copy_(draft_logp)
        self._length.fill_(cache.length)
        self._position.fill_(cache.position)
        bucket = self._forward.bucket(cache.length + len(self._rows.tokens), self._buffers.slots)
        if bucket not in self._recorded:
            self._recorded[bucket] = self._record(bucket)
        made = _Made(*self._recorded[bucket]())
        self._next = made.tokens, made.draft_logp
        return made

    def _record(self, bucket: int) -> Callable[[], tuple[torch.Tensor, ...]]:
        # Recording may run the work several times: it reads nothing that it has written, but rows behind the
        # committed ones, which it writes anew before it reads them.
        try:
            return self._forward.record(lambda: self._step(bucket))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._forward.records_steps = False
            raise NotRecordedError(reason_of(error)) from error

    def _step(self, bucket: int) -> tuple[torch.Tensor, ...]:
        """The fields of ``_Made``."""
        count = self._count
        outputs = self._forward.compute(self._rows, self._length, self._position, self._buffers, bucket)
        logits, features = (one[:count] for one in side_by_side(*outputs))
        tokens, choices = self._rows.tokens[:count], logits.argmax(dim=-1)
        fails = tokens != choices.index_select(0, self._parents)
        fails = fails & (self._depths > 0)  # the root was chosen a step ago
        alive = ~(self._mask & fails).any(dim=1)
        # Two as deep can only be the same tokens, guessed twice: either will do.
        last = torch.where(alive, self._depths, -1).argmax(dim=0, keepdim=True)  # [1]
        self._keep(self._paths.index_select(0, last)[0])
        kept_features = features.index_select(0, last)
        following, logp = self._drafter.guess(choices.index_select(0, last), kept_features)
        return logits, features, torch.stack([tokens, choices]), following, logp

    def _keep(self, path: torch.Tensor) -> None:
        """Move the rows of ``path`` [D + 1] to the front of those that were written."""
        places = torch.arange(len(path), device=path.device) + self._length
        for store in self._buffers.stores:  # [n, G, S, D]
            # Selecting copies, so overlapping source and target are safe.
            store.index_copy_(2, places, store.index_select(2, path + self._length))


def _paths(shape: TokenTree) -> list[list[int]]:
    """The path to each node, as long as the longest: behind its end each row stays where it is."""
    paths: list[list[int]] = []
    for node, parent in enumerate(shape.parents):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
    longest = range(max(shape.depths) + 1)
    return [[path[place] if place < len(path) else place for place in longest] for path in paths]
