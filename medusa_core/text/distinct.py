"""Distinct-n: how much a text repeats itself (Li et al., 2016, arXiv 1510.03055; TokenSwift, §3.1)."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 4  # n runs from 1 to this


def distinct_n(tokens: Sequence[int], n: int) -> float | None:
    """Distinct n-grams over all n-grams: 1 where none comes twice; None for a text without any."""
    count = len(tokens) - n + 1
    if count < 1:
        return None
    return len(set(zip(*(tokens[start : start + count] for start in range(n)), strict=True))) / count
