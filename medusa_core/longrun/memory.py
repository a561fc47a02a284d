"""The memory of a long run, estimated before and measured while it runs: weights, whole cache, workspace.

The cache is allocated once, for the whole length, so that nothing grows or is copied while the text does.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from medusa_core.config import GenerationConfig
from medusa_core.decoding import rows_of_run
from medusa_core.drafters import draft_of, make_drafter
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.loading.devices import free_memory, return_freed_memory
from medusa_core.loading.memory import margin
from medusa_core.longrun.segments import SEGMENT
from medusa_core.words import bytes_words


@dataclass(frozen=True)
class RunMemory:
    """Bytes of a run: ``free`` is what there was beside the weights, which are loaded."""

    rows: int
    weights: int
    cache: int
    workspace: int
    free: int
    window: bool  # whether the cache stops growing

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.weights + self.cache + self.workspace

    def parts(self) -> str:
        """The parts in words for a person."""
        kind = " (a window)" if self.window else ""
        return (
            f"memory for {self.rows:,} rows: weights of model and drafter {bytes_words(self.weights)} + "
            f"cache {bytes_words(self.cache)}{kind} + workspace {bytes_words(self.workspace)} = "
            f"{bytes_words(self.total)}"
        )

    def words(self) -> str:
        """The parts and what is free, in words for a person."""
        return f"{self.parts()}; {bytes_words(self.free)} are free beside the weights"

    def require(self) -> None:
        """Raise MedusaError with the numbers where it does not fit."""
        needed = self.cache + self.workspace
        if needed <= self.free:
            return
        # A smaller cache lowers the workspace too, of which weights and libraries keep their part.
        rows = max(0, self.free - margin(self.weights)) * self.rows // (self.cache + self.cache // 5)
        raise MedusaError(
            f"a cache for {self.rows:,} rows takes {bytes_words(self.cache)} and a step "
            f"{bytes_words(self.workspace)}, {bytes_words(self.free)} are free: there is room for {rows:,} "
            "rows, so lower --max-new-tokens"
            + ("" if self.window else ", or use --context N --extend window")
        )


def run_memory(engine: Engine, prompt: int, config: GenerationConfig) -> RunMemory:
    """The memory of a run after ``prompt`` tokens on the target's device. Raises MedusaError."""
    target = engine.target
    drafter = make_drafter(target, engine.drafts, config)
    rows = rows_of_run(target, drafter, prompt, config.max_new_tokens)
    draft = draft_of(engine.drafts, config)
    weights = target.weight_bytes
    if draft is not None:
        weights += sum(tensor.nbytes for tensor in draft.tensors())
    cache = target.cache_bytes(rows) + drafter.cache_bytes_for(rows)
    return RunMemory(
        rows=rows,
        weights=weights,
        cache=cache,
        workspace=margin(weights + cache),
        free=free_memory(target.output_device),
        window=target.cache_bytes(2 * rows + SEGMENT) == target.cache_bytes(rows),
    )


class PeakMemory:
    """The most that this process, or its GPU, has held above what it held at the start."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._most = 0
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)
            self._start = torch.cuda.memory_allocated(self._cuda)
            return
        return_freed_memory()  # memory left by loading would hide the run's own
        self._process = psutil.Process()
        self._start = self._process.memory_info().rss

    def grown(self) -> int:
        """Peak bytes until now; for a process the largest seen at these calls, one after each step."""
        if self._cuda is not None:
            return torch.cuda.max_memory_allocated(self._cuda) - self._start
        self._most = max(self._most, self._process.memory_info().rss - self._start)
        return self._most
