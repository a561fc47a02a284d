"""The bounds of a measurement: its sizes and rounds, and what ends it early."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from medusa_core.config import TIMED_ROUNDS, TIMED_SIZES

COUNTING, TIMING = "counting", "timing"  # the two parts of a measurement of heads
STOPPED = "Stopped"
TIME_IS_UP = "The time is up"
ROUND_TOKENS = 48  # tokens of a run when tree sizes are timed


@dataclass(frozen=True)
class Effort:
    """How much is measured of heads. ``seconds`` is what counting and timing may each take."""

    counted_tokens: int  # written after a prompt, when right guesses are counted
    sizes: Sequence[int] = TIMED_SIZES  # nodes of the timed trees, the root included
    rounds: int = TIMED_ROUNDS  # of timing; 0: no tree is timed
    round_tokens: int = ROUND_TOKENS
    seconds: float = math.inf


@dataclass(frozen=True)
class Limit:
    """Ends work early: at once where ``stop`` says so, and at ``deadline`` with the part that is complete."""

    stop: Callable[[], bool] = lambda: False
    deadline: float = math.inf  # as `clock` counts
    clock: Callable[[], float] = perf_counter  # another one leaves out the time in which the work is paused

    def within(self, seconds: float) -> Limit:
        """The limit of a part of the work that begins now: it ends sooner, and is stopped in the same way."""
        return replace(self, deadline=min(self.deadline, self.clock() + seconds))

    @property
    def stopped(self) -> bool:
        """Whether the work ends at once."""
        return self.stop()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - self.clock())

    @property
    def why(self) -> str:
        """What ends the work now, or nothing."""
        return STOPPED if self.stopped else "" if self.left else TIME_IS_UP

    def reached(self) -> bool:
        """Whether the work ends here."""
        return bool(self.why)


NO_LIMIT = Limit()
