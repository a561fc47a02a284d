"""Whether a run has diverged: its watched loss, smoothed, against where it began and what chance gives.

Fresh heads guess the next token where a later one is asked for, and are sure of it, so that they begin above
chance, the more the better the base is. A healthy run leaves that behind and does not come back. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

_SMOOTHING = 0.8  # share that the mean keeps at each step: one odd batch ends no run
_FAR_ABOVE = 1.5  # times chance, or the first loss where that is larger
_LEARNED = 0.75  # times chance: below, the run had learned something


@dataclass(frozen=True)
class DivergenceLimit:
    """The loss to watch, and what guessing at random gives for it, in nats."""

    name: str
    chance: float


@dataclass(frozen=True)
class LossTracker:
    """The course of the watched loss: where it began, its running mean and the lowest that mean was."""

    first: float
    mean: float
    lowest: float

    @classmethod
    def after(cls, course: LossTracker | None, loss: float) -> LossTracker:
        """The course with one more step; None is a run's beginning."""
        if course is None:
            return cls(loss, loss, loss)
        mean = _SMOOTHING * course.mean + (1 - _SMOOTHING) * loss
        return cls(course.first, mean, min(course.lowest, mean))

    def fault(self, watch: DivergenceLimit) -> str | None:
        """What is wrong with the course, None while nothing is."""
        chance = f"guessing at random gives {watch.chance:.2f}"
        if self.mean > _FAR_ABOVE * max(watch.chance, self.first):
            return f"{watch.name} is {self.mean:.2f} on average, it began at {self.first:.2f} and {chance}"
        if self.lowest < _LEARNED * watch.chance < watch.chance < self.mean:
            return f"{watch.name} rose from {self.lowest:.2f} to {self.mean:.2f}, {chance}"
        return None
