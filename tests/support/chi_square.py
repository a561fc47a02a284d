"""The χ² test with which tests of sampling compare counts with a distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chisquare

LEAST_P = 1e-3


def p_value(counts: ArrayLike, wanted: ArrayLike, cells: int = 15) -> float:
    """The p-value; cells of fewer than five expected runs merge, and more than ``cells`` must be left."""
    counts = np.asarray(counts, dtype=float).ravel()
    expected = np.asarray(wanted, dtype=float).ravel() * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    assert len(observed) > cells
    return chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
