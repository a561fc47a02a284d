"""Measurements to rows: pure functions, no model behind them.

Rates are sums over sums (all tokens over all steps or seconds), as the paper's acceleration rate is, so a
long text counts for more than a short one; the standard error over prompts is that of such a ratio.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from medusa_core.engine.summary import PHASES, distinct_n
from medusa_core.evaluation.speedup import Speedup, speedup
from medusa_core.evaluation.turns import Measurement, MethodLog
from medusa_core.experiments.record import Mean, Row, Spread

PIECE = 3  # tokens of the pieces whose repetition is counted


def make_row(
    log: MethodLog,
    base: MethodLog | None = None,
    *,
    series: str,
    label: str,
    tree_nodes: int | None,
    x: float | None = None,
    expected: float | None = None,
    generate: MethodLog | None = None,
) -> Row:
    """The row of one runner; ``base`` is plain decoding of the same prompts in the same rounds, ``generate``
    transformers'. A runner that is not ours has no phases: its step is its whole time over its steps.
    """
    row = Row(
        series=series,
        label=label,
        x=x,
        prompts=len(log.rounds[0]),
        new_tokens=sum(len(m.tokens) for m in log.runs),
        tree_nodes=tree_nodes,
        tokens_per_step=ratio(by_prompt(log, lambda m: len(m.tokens)), by_prompt(log, lambda m: m.steps)),
        expected_tokens_per_step=None if expected is None else round(expected, 4),
        tokens_per_second=spread(log.rates()),
        step_ms=round(_step_ms(log), 4),
        phase_ms={p: round(log.mean_step(p), 4) for p in PHASES} if log.has_phases else {},
        over_generate=None if generate is None else _times(log, generate),
    )
    if base is None:
        return row
    row.speedup, row.same_texts = _times(log, base), log.same_texts(base)
    row.overhead = round(_step_ms(log) / _step_ms(base), 4)
    return row


def computed_row(
    *, series: str, label: str, x: int, nodes: int, kept: float, rate: float, step_ms: float, overhead: float
) -> Row:
    """A row that formulas give, for which nothing ran: its speedup is the tokens kept over the overhead."""
    return Row(
        series=series,
        label=label,
        x=x,
        prompts=0,
        new_tokens=0,
        tree_nodes=nodes,
        tokens_per_step=Mean(mean=round(kept, 5), standard_error=None),
        tokens_per_second=spread([rate]),
        step_ms=round(step_ms, 4),
        phase_ms={},
        overhead=round(overhead, 4),
        speedup=spread([kept / overhead]),
    )


def _step_ms(log: MethodLog) -> float:
    if log.has_phases:
        return log.mean_step("total")
    return statistics.median(1000 * sum(m.seconds for m in r) / sum(m.steps for m in r) for r in log.rounds)


def _times(log: MethodLog, other: MethodLog) -> Spread:
    return spread_of(speedup(log.rates(), other.rates()))


def spread_of(found: Speedup) -> Spread:
    """A speedup as records hold it."""
    return Spread(median=round(found.middle, 4), low=round(found.low, 4), high=round(found.high, 4))


def by_prompt(log: MethodLog, value) -> list[float]:
    """A value of the measurements, summed over the rounds for each prompt."""
    return [sum(value(m) for m in of_prompt) for of_prompt in zip(*log.rounds, strict=True)]


def ratio(above: Sequence[float], below: Sequence[float]) -> Mean:
    """Σ above / Σ below with its standard error over prompts (linearised, as usual for a ratio of sums)."""
    count, total = len(below), sum(below)
    value = sum(above) / total
    if count < 2:
        return Mean(mean=round(value, 5), standard_error=None)
    residual = sum((a - value * b) ** 2 for a, b in zip(above, below, strict=True))
    error = math.sqrt(residual * count / (count - 1)) / total
    return Mean(mean=round(value, 5), standard_error=round(error, 5))


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest."""
    low, middle, high = (round(v, 4) for v in (min(values), statistics.median(values), max(values)))
    return Spread(median=middle, low=low, high=high)


def distinct_share(texts: Iterable[Measurement]) -> float | None:
    """Different pieces of three tokens over all of them, within each text; None when texts are shorter."""
    share = distinct_n((text.tokens for text in texts), PIECE)
    return None if share is None else round(share, 4)
