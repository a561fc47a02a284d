"""The size of a tree that pays most on a machine: expected tokens per step over the time of a step.

A larger tree keeps more tokens but takes longer to verify. How much longer depends on the machine, so the
time comes from a measurement (`latency`). Paper §2.3.3 and figure 4b.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_text
from medusa_core.trees.search import FoundTree, expected_lengths, search_tree
from medusa_core.trees.tree import MAX_NODES

UNSTEADY = 1.5  # slowest over fastest round beyond which a measurement says little
USUAL_NODES = 8  # size of a tree where none was timed, the root included
PLAIN = 1  # nodes of a step of plain decoding: the root alone, and no head is asked


class LatencyPoint(BaseModel):
    """One measured size. ``nodes`` counts the root, times are milliseconds; extra keys are ignored."""

    model_config = ConfigDict(frozen=True)

    nodes: int = Field(ge=1, le=MAX_NODES)
    step_ms: float = Field(gt=0, allow_inf_nan=False)
    step_ms_range: tuple[float, float] | None = None  # fastest and slowest round
    propose: float | None = None
    verify: float | None = None
    accept: float | None = None
    commit: float | None = None
    tokens_per_step: float | None = Field(default=None, allow_inf_nan=False)  # kept on the way
    steps: int | None = None


class _LatencyFile(BaseModel):
    latency: list[LatencyPoint] = Field(max_length=MAX_NODES)


@dataclass(frozen=True)
class Budget:
    """A tree size with what is expected of it. ``nodes`` counts the root; 1 is plain decoding."""

    nodes: int
    expected_length: float
    step_ms: float
    tokens_per_second: float


def parse_latency(data: object) -> list[LatencyPoint]:
    """The measured sizes in what JSON gave, by size; empty where there are none. Raises MedusaError."""
    if not isinstance(data, dict) or data.get("latency") is None:
        return []
    try:
        points = _LatencyFile.model_validate(data).latency
    except ValidationError as error:
        raise MedusaError(reason_of(error)) from error
    sizes = [point.nodes for point in points]
    if len(set(sizes)) != len(sizes):
        raise MedusaError(f"latency lists a size twice: {sorted(sizes)}")
    return sorted(points, key=lambda point: point.nodes)


def read_latency(path: Path) -> list[LatencyPoint]:
    """The latency curve in a file of ``calibrate``; empty when it has none. Raises MedusaError."""
    try:
        return parse_latency(json.loads(read_text(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise MedusaError(
            f"cannot read the latency in {path} ({reason_of(error)}): write it anew with calibrate"
        ) from error


def step_times(latency: Sequence[LatencyPoint], nodes: Sequence[int]) -> list[float]:
    """Milliseconds of a step for each size, never falling with size; sizes outside those measured clamp.

    Measured times jitter, but a larger tree is never less work: neighbours that are out of order are pooled
    to their mean (isotonic regression), and sizes in between lie on a straight line.
    """
    blocks: list[list[float]] = []
    for point in latency:
        blocks.append([point.step_ms])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    pooled = [fmean(block) for block in blocks for _ in block]
    return np.interp(nodes, [point.nodes for point in latency], pooled).tolist()


def budgets(
    accuracies: Sequence[Sequence[float]],
    latency: Sequence[LatencyPoint],
    max_depth: int | None = None,
) -> list[Budget]:
    """Every tree size from the smallest to the largest measured one. Raises MedusaError."""
    if not latency or latency[-1].nodes <= PLAIN:
        raise MedusaError('no latency was measured: run "calibrate --latency", or give a number of nodes')
    lengths = expected_lengths(accuracies, search_tree(accuracies, latency[-1].nodes - 1, max_depth).choices)
    first = latency[0].nodes  # where plain decoding was not measured, a tree says nothing about it
    sizes = range(first, len(lengths) + 1)
    return [
        Budget(size, length, ms, 1000 * length / ms)
        for size, length, ms in zip(sizes, lengths[first - 1 :], step_times(latency, sizes), strict=True)
    ]


def unsteady(latency: Sequence[LatencyPoint]) -> str | None:
    """A warning when the rounds of one size differ so much that the figures say little, else None."""
    ratios = [high / low for low, high in (p.step_ms_range for p in latency if p.step_ms_range) if low > 0]
    spread = median(ratios) if ratios else 1.0
    if spread < UNSTEADY:
        return None
    return (
        f"slowest and fastest round differ by a factor of {spread:.1f} or more in half of the sizes: measure "
        "again on an idle machine"
    )


def best_budget(found: Sequence[Budget]) -> Budget:
    """The tree with the most expected tokens per second; of equals the smaller. Not plain decoding."""
    trees = [budget for budget in found if budget.nodes > PLAIN]
    if not trees:
        raise MedusaError("no tree size was measured: calibrate with sizes of 2 nodes and more")
    return min(trees, key=lambda budget: (-budget.tokens_per_second, budget.nodes))


def best_tree(accuracies: Sequence[Sequence[float]], latency: Sequence[LatencyPoint]) -> FoundTree:
    """The tree of the size with the most expected tokens per second, or of USUAL_NODES if none was timed."""
    nodes, rate = USUAL_NODES, None
    if latency and latency[-1].nodes > PLAIN:
        best = best_budget(budgets(accuracies, latency))
        nodes, rate = best.nodes, best.tokens_per_second
    return replace(search_tree(accuracies, nodes - 1), tokens_per_second=rate)


def plain_budget(found: Sequence[Budget]) -> Budget | None:
    """Plain decoding, when it was measured."""
    return next((budget for budget in found if budget.nodes == PLAIN), None)
