"""Distinct-n: how much a text repeats itself (Li et al., 2016, arXiv 1510.03055; TokenSwift, §3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST = 4  # n runs from 1 to this


def distinct_n(texts: Iterable[Sequence[int]], n: int) -> float | None:
    """Distinct n-grams over all n-grams, each counted within its text; None where no text has any.

    1 where none comes twice in a text.
    """
    different = total = 0
    for text in texts:
        grams = list(zip(*(text[start:] for start in range(n)), strict=False))
        different, total = different + len(set(grams)), total + len(grams)
    return different / total if total else None
