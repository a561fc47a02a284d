"""The largest part of a step's time, from the figures that ``bench`` has of a method.

A step has four parts: the least time of its forward, what the forward takes beyond that, the making of
the guesses, and the work of the loop around both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEMORY, ARITHMETIC = "memory", "arithmetic"  # the forward is about as fast as the machine allows
OVERHEAD = "overhead"  # most of the forward is neither reading nor arithmetic
DRAFTING = "drafting"
HOST = "host"
FORWARD = "forward"  # where its least time is not known
_NEARLY = 0.9  # share of the largest part from which noise may turn the order


@dataclass(frozen=True)
class Bottleneck:
    """``ms`` of ``step_ms`` is the largest part, and ``nearly`` the kind of another that is about as large.

    ``bound`` is what limits the forward at best, MEMORY or ARITHMETIC, and ``limit_ms`` its least time, None
    where that is not known.
    """

    kind: str
    step_ms: float
    ms: float
    bound: str | None = None
    limit_ms: float | None = None
    nearly: str | None = None

    @property
    def share(self) -> float:
        """The part's share of the step's time."""
        return self.ms / self.step_ms


def bottleneck(figures: Mapping[str, Any]) -> Bottleneck:
    """The largest part of a method's step; ``figures`` are the method's in a record of ``bench``."""
    step, ms = figures["step_ms"], figures["phase_ms"]
    verify = ms["verify"]
    parts = {DRAFTING: ms["propose"], HOST: step - ms["propose"] - verify}
    bound = least = None
    if limits := figures.get("limits"):
        work = limits["phases"]["verify"]
        reading, computing = work["bytes"] / limits["bandwidth"], work["flops"] / limits["peak"]
        bound, least = MEMORY if reading >= computing else ARITHMETIC, work["limit_ms"]
        parts |= {bound: min(least, verify), OVERHEAD: max(0.0, verify - least)}
    else:
        parts[FORWARD] = verify
    kind, second, *_ = sorted(parts, key=lambda name: -parts[name])
    nearly = second if parts[second] > _NEARLY * parts[kind] else None
    return Bottleneck(kind, step, parts[kind], bound, least, nearly)
