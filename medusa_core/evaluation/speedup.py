"""Speedup, defined once for every table, record and page.

It is the median of a method's tokens per second over the rounds, divided by the median of the method that it
is compared with, so it equals the ratio of the two speeds shown in the same table. The range is that of the
ratios within a round, whose sides were measured minutes apart at most.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Speedup(NamedTuple):
    """How many times as fast, with the lowest and the highest ratio of a round."""

    middle: float
    low: float
    high: float


def speedup(rates: Sequence[float], base: Sequence[float]) -> Speedup:
    """The speedup of tokens per second by round over those of ``base`` in the same rounds.

    The ratio of the medians may lie outside the ratios of the rounds; the range then reaches to it. Raises
    ValueError where the two have another number of rounds.
    """
    middle = statistics.median(rates) / statistics.median(base)
    within = [own / other for own, other in zip(rates, base, strict=True)]
    return Speedup(middle, min(middle, *within), max(middle, *within))


@dataclass(frozen=True)
class Gain:
    """Fresh heads and new heads with the same tree on the same prompts; speedup is over plain decoding."""

    nodes: int
    fresh_tokens_per_step: float
    fresh_speedup: float
    tokens_per_step: float
    speedup: float
    prompts: int
