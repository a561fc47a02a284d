"""transformers' forward as CUDA graphs: a step's kernels are captured once and launched as a whole.

What differs between two steps lies on the device: tokens, depths, the tree's mask and the number of committed
rows are copied into buffers, rows are padded to a few sizes, and attention reads a fixed number of slots, a
bucket, in which the mask hides all that hold no row of the text or the tree. So a step is the same list of
kernels at the same addresses each time.
A graph knows the addresses of its cache, whose memory outlives the run: the next run takes it over. Parts of
a prompt are read as they come, without a graph.

N rows, padded · B slots of a bucket
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any, Protocol, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.cache_utils import Cache

from medusa_core.errors import MedusaError
from medusa_core.model.compiled_parts import CompiledParts
from medusa_core.model.features import Features
from medusa_core.model.forward import Outputs, Part, Rows
from medusa_core.model.kv_cache import Place, TreeCache, TreeLayer, padded_rows
from medusa_core.model.loaded_model import LoadedModel
from medusa_core.model.masks import SLIDING, LayerMasks
from medusa_core.model.transformers_forward import TransformersForward

SIZES = (1, 4, 8, 16, 32, 64, 128, 256)  # rows of a verified tree, padded
_SMALLEST_BUCKET = 128  # slots; each next one is twice as large
_LEAST_IDLE = 2  # memories kept for later runs, however few were in use at once
_WARM_UPS = 3  # runs before the capture, in which libraries choose their kernels and allocate

# Before a capture torch waits for the whole device, which breaks off the capture of another thread.
_ONE_CAPTURE_AT_A_TIME = Lock()

Result = TypeVar("Result")


def bucket_of(rows: int) -> int:
    """Slots of the smallest bucket that has room for so many rows."""
    return max(_SMALLEST_BUCKET, 1 << (rows - 1).bit_length())


class Capture(Protocol):
    """Captures work that keeps to what a graph can hold; what it returns runs the same work again."""

    def __call__(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Its results may lie at addresses that the next call overwrites."""


def capture_on_cuda(work: Callable[[], Result]) -> Callable[[], Result]:
    """Capture the work once as a graph of the current device; a call replays it."""
    with _ONE_CAPTURE_AT_A_TIME:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Runs in other threads may allocate meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = work()

    def replay() -> Result:
        graph.replay()
        return results

    return replay


def capture_checked(
    work: Callable[[], Result],
    capture: Capture,
    parts: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[[], Result]:
    """Capture work within ``parts``.

    The work is checked first, and uncompiled: a failed capture may leave the device with an error, and torch
    compiles nothing that it has once met inside a dispatch mode.
    """
    with NoHostReads():
        work()

    def compiled() -> Result:
        with parts():
            return work()

    return capture(compiled)


@dataclass
class _Step:
    """One padded size over one bucket: the buffers it reads, and what runs it."""

    rows: Rows
    length: torch.Tensor  # [], committed rows
    position: torch.Tensor  # [], of the root in the text
    run: Callable[[], Outputs] | None = None  # captured at the first step
    shape: torch.Tensor | None = None  # the mask that was copied last: trees keep theirs from step to step

    @classmethod
    def of(cls, size: int, features: Features, device: torch.device) -> _Step:
        """Buffers whose content is copied in before each run."""
        tokens, depths = torch.zeros(2, size, dtype=torch.long, device=device)
        seen = torch.eye(size, dtype=torch.bool, device=device)
        counts = torch.zeros(2, dtype=torch.long, device=device)
        # Which depth is the largest is not known here.
        return cls(Rows(tokens, depths, 0, seen, features=features), counts[0], counts[1])

    def load(self, rows: Rows, length: int, position: int) -> None:
        """Copy the step's inputs to where the captured work reads them."""
        count = len(rows.tokens)
        self.rows.tokens[:count].copy_(rows.tokens)
        self.length.fill_(length)
        self.position.fill_(position)
        if rows.allowed is not self.shape:
            self.shape = rows.allowed
            self.rows.depths.zero_()[:count].copy_(rows.depths)
            # A padded row attends to itself, since a softmax over no key is NaN; no other row attends to it.
            self.rows.allowed.zero_().fill_diagonal_(True)[:count, :count].copy_(rows.allowed)


@dataclass(eq=False)
class _Memory:
    """The layers of a cache, and the steps captured over them."""

    layers: Sequence[TreeLayer]
    steps: dict[tuple[Any, ...], _Step] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.layers[0].slots


class CapturedForward(TransformersForward):
    """The ``Forward`` of a device whose kernels can be captured."""

    def __init__(
        self,
        held: LoadedModel,
        masks: LayerMasks,
        capture: Capture,
        parts: CompiledParts | None = None,
    ) -> None:
        """``parts`` of the model are captured as torch has compiled them."""
        super().__init__(held, masks)
        self._capture = capture
        self._parts: Callable[[], AbstractContextManager[None]] = parts.in_place if parts else nullcontext
        self._idle: list[_Memory] = []  # the smallest first
        self._used = self._most_used = 0  # memories of caches, now and at most
        # Finalizers of caches hand memories back, in any thread and also within a block that holds the lock.
        self._lock = RLock()
        self._memories: weakref.WeakKeyDictionary[TreeCache, _Memory] = weakref.WeakKeyDictionary()

    def new_cache(self, slots: int) -> TreeCache:
        """An empty cache with room for the rows that pad a tree, in the smallest free memory that fits."""
        memory = self._take(slots + SIZES[-1])
        layers = memory.layers if memory is not None else self._held.config.num_hidden_layers
        cache = TreeCache(layers, slots, SIZES[-1])
        if memory is None:
            memory = _Memory(cache.tree_layers)
        else:
            for layer in memory.layers:
                layer.clear()
        self._memories[cache] = memory
        with self._lock:
            self._used += 1
            self._most_used = max(self._used, self._most_used)
        weakref.finalize(cache, self._give_back, memory)
        return cache

    def cache_bytes(self, slots: int) -> int:
        """Bytes of a cache of so many slots; rows outside of a window are kept too."""
        return super().cache_bytes(padded_rows(slots, SIZES[-1]))

    def __call__(self, parts: Sequence[Part]) -> list[Outputs]:
        """One output for each part; that of a tree is valid until the next tree.

        Several texts share transformers' forward as it is: a graph knows the memory of one alone.
        """
        if len(parts) > 1:
            return super().__call__(parts)
        rows, cache = parts[0].rows, parts[0].cache
        if cache not in self._memories:
            raise MedusaError("this cache is of another forward: make one with new_cache() of this target")
        memory, count = self._memories[cache], len(rows.tokens)
        size = next((size for size in SIZES if size >= count), None)
        if rows.kept or size is None or not memory.layers[0].is_initialized:
            return super().__call__(parts)
        bucket = min(bucket_of(cache.length + size), memory.rows)
        step = self._step(memory, size, bucket, rows.features)
        step.load(rows, cache.length, cache.position)
        if step.run is None:
            # Capturing runs the work: with this step's rows it writes where this step writes.
            step.run = capture_checked(
                lambda: self._compute(step, memory.layers, bucket), self._capture, self._parts
            )
        logits, states = step.run()
        return [(logits[:count], [state[:count] for state in states])]

    def _step(self, memory: _Memory, size: int, bucket: int, features: Features) -> _Step:
        # A cache that grew lies elsewhere, and what was captured over its old place is of no use.
        place = memory.layers[0].keys.data_ptr()
        key = place, size, bucket, features
        if key not in memory.steps:
            memory.steps = {old: step for old, step in memory.steps.items() if old[0] == place}
            memory.steps[key] = _Step.of(size, features, self._held.device)
        return memory.steps[key]

    def _compute(self, step: _Step, layers: Sequence[TreeLayer], bucket: int) -> Outputs:
        """The forward itself: device operations of fixed shapes alone."""
        rows, length = step.rows, step.length
        place = Place(length, torch.arange(len(rows.tokens), device=length.device) + length, bucket)
        for layer in layers:
            layer.place = place
        try:
            read = self._run(
                rows,
                input_ids=rows.tokens[None],
                attention_mask=self._masks.for_model(self._visible(rows, length, bucket), self._held.dtype),
                position_ids=(rows.depths + step.position)[None],
                **{self._held.cache_argument: Cache(layers=list(layers))},
            )
        finally:
            for layer in layers:
                layer.place = None
        return read.of()

    def _visible(self, rows: Rows, length: torch.Tensor, bucket: int) -> dict[str, torch.Tensor]:
        """Which rows see which slots, by kind of layer: bool [1, 1, N, B]."""
        count = len(rows.tokens)
        slot = torch.arange(bucket, device=length.device)
        behind = slot - length  # a row of this forward where it is 0 to N − 1
        node = behind.clamp(0, count - 1)
        in_tree = (behind >= 0) & (behind < count)
        full = (behind < 0) | (in_tree & rows.allowed.index_select(1, node))
        visible = dict.fromkeys(self._masks.kinds, full[None, None])
        if SLIDING in visible and self._masks.window is not None:
            position = torch.where(in_tree, length + rows.depths[node], slot)
            own = length + rows.depths
            visible[SLIDING] = (full & (position > own[:, None] - self._masks.window))[None, None]
        return visible

    def _take(self, rows: int) -> _Memory | None:
        """The smallest free memory that has so many rows; from here on it is the caller's.

        Where all are too small, the smallest makes room for a new one.
        """
        with self._lock:
            found = next((memory for memory in self._idle if memory.rows >= rows), None)
            if found is not None:
                self._idle.remove(found)
            elif len(self._idle) + self._used >= max(_LEAST_IDLE, self._most_used):
                del self._idle[:1]
        return found

    def _give_back(self, memory: _Memory) -> None:
        with self._lock:
            self._used -= 1
            self._idle.append(memory)
            self._idle.sort(key=lambda one: one.rows)
            # Each text of the next batch finds one, so that its steps are captured already. Of what is more
            # than was ever in use at once, the smallest goes, of equal ones the oldest.
            del self._idle[: -max(_LEAST_IDLE, self._most_used - self._used)]


_READS = {
    "_local_scalar_dense": "reads a number on the host",
    "nonzero": "makes a tensor whose size depends on its values",
    "is_nonzero": "asks on the host whether a number is 0",
    "equal": "compares tensors on the host",
    "masked_select": "makes a tensor whose size depends on its values",
    "_unique2": "makes a tensor whose size depends on its values",
}


class HostReadError(RuntimeError):
    """Why work cannot be captured."""


class NoHostReads(TorchDispatchMode):
    """Raises HostReadError where a value leaves the device, or a tensor moves between devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        if name in _READS:
            raise HostReadError(f"it {_READS[name]}")
        device = (kwargs or {}).get("device")
        if name == "_to_copy" and device is not None and device != args[0].device:
            raise HostReadError("it moves a tensor between devices")
        return func(*args, **(kwargs or {}))
