"""One definition of speedup wherever it is stated, and what takes the largest part of a step."""

from __future__ import annotations

import statistics

import pytest

from medusa_core.config import GenerationConfig
from medusa_core.evaluation.bench import bench_record
from medusa_core.evaluation.bottleneck import (
    ARITHMETIC,
    DRAFTING,
    FORWARD,
    HOST,
    MEMORY,
    OVERHEAD,
    bottleneck,
)
from medusa_core.evaluation.speedup import speedup
from medusa_core.evaluation.step_times import _points
from medusa_core.evaluation.turns import Measurement, MethodLog
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.spec_bench import ALL, STEP
from medusa_core.experiments.store import MEASURED, read_record

SPEEDS = {"medusa": [263.0, 325.0, 244.0], "none": [103.0, 129.0, 112.0]}  # the paired ratios' median is 2.52
PHASES = dict.fromkeys(("propose", "verify", "accept", "commit", "total"), 1.0)


def log(rates):
    return MethodLog([[Measurement([1, 2], 2 / rate, 1, dict(PHASES), nodes=2)] for rate in rates])


def test_it_is_the_ratio_of_the_medians_with_the_range_of_the_rounds():
    found = speedup(SPEEDS["medusa"], SPEEDS["none"])
    assert found.middle == pytest.approx(263 / 112)
    assert (found.low, found.high) == (pytest.approx(244 / 112), pytest.approx(263 / 103))
    aside = speedup([10.0, 20.0, 30.0], [10.0, 5.0, 5.0])
    assert (aside.middle, aside.low, aside.high) == (4.0, 1.0, 6.0)
    assert speedup([4.0], [2.0]) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="zip"):
        speedup([4.0, 4.0], [2.0])


def test_bench_and_experiments_state_it_alike(engine):
    logs = {name: log(rates) for name, rates in SPEEDS.items()}
    figures = bench_record(engine, logs, list(logs), GenerationConfig())["methods"]["medusa"]
    row = make_row(logs["medusa"], logs["none"], series="medusa", label="all", tree_nodes=2)
    assert figures["speedup"] == round(row.speedup.median, 3) == round(263 / 112, 3)
    assert figures["speedup_range"] == [round(row.speedup.low, 3), round(row.speedup.high, 3)]


RECORDS = [file for file in sorted(MEASURED.glob("*/*.json")) if not read_record(file).simulated]


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: "/".join(file.parts[-2:]))
def test_in_every_record_it_is_the_ratio_of_the_speeds_beside_it(file):
    rows = read_record(file).rows
    for row in (row for row in rows if row.speedup is not None):
        ratio = row.tokens_per_second.median / base_of(row, rows).tokens_per_second.median
        assert row.speedup.median == pytest.approx(ratio, abs=2e-4), row.name
        assert row.speedup.low <= row.speedup.median <= row.speedup.high


def base_of(row, rows):
    """Plain decoding of the row's own setting, or the only one that there is; without one the first row."""
    plain = [one for one in rows if one.series in ("none", "plain decoding", "plain decoding, penalty")]
    label = ALL if row.series == STEP else row.label
    penalised = [one for one in plain if one.series.endswith("penalty") == row.series.endswith("penalty")]
    found = [one for one in penalised if one.label == label] or plain or rows[:1]
    assert len(found) == 1
    return found[0]


def test_quartiles_of_few_times_lie_within_them():
    """The usual estimate of [1, 9] begins below 0, which a record of step times refuses."""
    assert statistics.quantiles([1.0, 9.0], n=4)[0] < 0
    (point,) = _points({16: [1.0, 9.0], 64: []})
    assert (point.step_ms, point.step_ms_range) == (3.0, (3.0, 7.0))
    (single,) = _points({16: [1.0]})
    assert (single.step_ms, single.step_ms_range) == (1.0, (1.0, 1.0))


# --- What takes the largest part of a step, from the figures of a method: every kind once.


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
