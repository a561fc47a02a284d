"""What takes the largest part of a step, from the figures of a method: every kind once."""

from __future__ import annotations

import pytest

from medusa_core.evaluation.bottleneck import (
    ARITHMETIC,
    DRAFTING,
    FORWARD,
    HOST,
    MEMORY,
    OVERHEAD,
    bottleneck,
)


def figures(step, propose, verify, limit=None, *, flops=1e9):
    """With a forward of 10 MB on a machine of 10 GB/s and 10 TFLOP/s, so that reading takes 1 ms."""
    found = {
        "step_ms": step,
        "phase_ms": {"propose": propose, "verify": verify, "accept": 0.1, "commit": 0.1},
    }
    if limit is not None:
        work = {"bytes": 1e7, "flops": flops, "limit_ms": limit}
        found["limits"] = {"bandwidth": 1e10, "peak": 1e13, "phases": {"verify": work}}
    return found


@pytest.mark.parametrize(
    ("given", "kind", "ms", "bound"),
    [
        (figures(2.0, 0.1, 1.7, 1.0), MEMORY, 1.0, MEMORY),
        (figures(3.0, 0.1, 2.7, 2.0, flops=2e10), ARITHMETIC, 2.0, ARITHMETIC),
        (figures(3.0, 0.1, 2.7, 1.0), OVERHEAD, 1.7, MEMORY),
        (figures(8.0, 5.0, 2.7, 2.0, flops=2e10), DRAFTING, 5.0, ARITHMETIC),
        (figures(6.0, 0.5, 2.0, 1.0), HOST, 3.5, MEMORY),
        (figures(3.0, 0.1, 2.7), FORWARD, 2.7, None),
        (figures(3.0, 2.0, 0.9), DRAFTING, 2.0, None),
        (figures(1.0, 0.05, 0.9, 1.0), MEMORY, 0.9, MEMORY),  # faster than its limit was measured to be
    ],
)
def test_the_largest_part(given, kind, ms, bound):
    found = bottleneck(given)
    assert (found.kind, found.bound) == (kind, bound)
    assert found.ms == pytest.approx(ms)
    assert found.share == pytest.approx(ms / given["step_ms"])
