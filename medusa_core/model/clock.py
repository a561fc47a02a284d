"""The time of a step by its phases."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds of one step by phase; ``total`` is their sum and what happened between them.

    The times of a batch are those of the step for all its runs. In a step that is one call of C, ``propose``
    is the time of the next step's tree, and moving the accepted rows counts as ``accept``, as does a tree
    that Python had to propose: the first one, and one after a step by phases.
    """

    propose: float
    verify: float
    accept: float
    commit: float
    total: float


class Clock:
    """Laps in milliseconds on the host, which on a CPU does all the work itself."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: list[float] = []

    def lap(self) -> None:
        """Mark the end of a phase."""
        now = time.perf_counter()
        self._laps.append((now - self._last) * 1000)
        self._last = now

    def lap_fused(self, propose: float, verify: float) -> None:
        """Mark the end of all phases up to acceptance, in a step whose phases were one call.

        ``propose`` and ``verify`` are the milliseconds of the tree and of the forward.
        """
        now = time.perf_counter()
        rest = (now - self._last) * 1000 - propose - verify
        self._laps += [propose, verify, max(0.0, rest)]
        self._last = now

    def times(self) -> PhaseTimes:
        """The times of the step, once all its phases are over."""
        propose, verify, accept, commit = self._laps
        return PhaseTimes(propose, verify, accept, commit, self._total())

    def _total(self) -> float:
        return (time.perf_counter() - self._start) * 1000


class CudaClock(Clock):
    """Laps by CUDA events, so that measuring adds no wait to the one that a step has.

    A step's wait is in the rule, which needs its answer on the host; by then the GPU's earlier work is over.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._marks = [self._mark()]

    def lap(self) -> None:
        super().lap()
        if len(self._marks) < 3:  # proposed and verified; the rest is counted on the host
            self._marks.append(self._mark())

    def times(self) -> PhaseTimes:
        begun, proposed, verified = self._marks
        verified.synchronize()  # over already, where the rule has waited
        propose, verify = begun.elapsed_time(proposed), proposed.elapsed_time(verified)
        *waited, commit = self._laps
        return PhaseTimes(propose, verify, max(0.0, sum(waited) - propose - verify), commit, self._total())

    def _mark(self) -> torch.cuda.Event:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self._device))
        return mark


def clock_for(device: torch.device) -> Clock:
    return CudaClock(device) if device.type == "cuda" else Clock()
