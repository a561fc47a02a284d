"""Measures what to expect; what is compared and its settings are in the package."""

from __future__ import annotations

from tqdm import tqdm

from medusa_core.drafters.medusa import NAME, with_heads
from medusa_core.engine import Engine
from medusa_core.evaluation.bench import BASELINE, TRANSFORMERS, make_runners
from medusa_core.evaluation.latency import PHASES, measure_latency
from medusa_core.evaluation.step_times import auto_tree_words
from medusa_core.experiments.expect import NAMES, STEP, Settings
from medusa_core.experiments.record import Mean, Row, Spread
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.experiments.simulated import read_numbers
from medusa_core.experiments.spec_bench import ALL
from medusa_core.text.plural import counted
from medusa_core.trees.budget import PLAIN, LatencyPoint

LATENCY_ROUNDS = 8


def measure(setup: Setup, settings: Settings) -> Findings:
    """Steps by their nodes, then all methods in turns. Raises MedusaError."""
    points = _step_times(setup, settings)
    engine = with_heads(setup.require_heads(), latency=tuple(points))
    config = setup.config(method=NAME)
    runners, left_out = make_runners(engine, setup.all_prompts, list(NAMES), config)
    logs = setup.interleave(runners)
    rows = []
    for name, log in logs.items():
        nodes = max(run.nodes for runs in log.rounds for run in runs) if log.has_phases else None
        base, generate = logs[BASELINE], logs.get(TRANSFORMERS)
        rows.append(make_row(log, base, series=name, label=ALL, tree_nodes=nodes, generate=generate))
    plain_ms = next((point.step_ms for point in points if point.nodes == PLAIN), None)
    rows += [_step_row(point, len(setup.all_prompts), plain_ms) for point in points]
    notes = [f"Medusa's {auto_tree_words(engine, config)}."]
    notes += [f"{name} was left out: {reason}." for name, reason in left_out.items()]
    return Findings(rows, notes)


def _step_times(setup: Setup, settings: Settings) -> list[LatencyPoint]:
    engine: Engine = setup.require_heads()
    rounds = min(LATENCY_ROUNDS, len(setup.all_prompts))
    sizes = read_numbers(settings.nodes, "nodes")
    points: list[LatencyPoint] = []
    with tqdm(total=rounds * len(sizes), unit="run", dynamic_ncols=True) as bar:
        for update in measure_latency(engine, setup.all_prompts, sizes, rounds, setup.run.max_new_tokens):
            points = update.latency
            bar.set_postfix_str(counted(update.nodes, "node"), refresh=False)
            bar.update()
    return points


def _step_row(point: LatencyPoint, prompts: int, plain_ms: float | None) -> Row:
    """The median step of one tree size."""
    kept = point.tokens_per_step or 1.0
    low, high = point.step_ms_range or (point.step_ms, point.step_ms)
    rates = (round(1000 * kept / ms, 4) for ms in (high, point.step_ms, low))
    return Row(
        series=STEP,
        label=counted(point.nodes, "node"),
        x=point.nodes,
        prompts=prompts,
        new_tokens=round(kept * (point.steps or 0)),
        tree_nodes=point.nodes,
        tokens_per_step=Mean(mean=kept, standard_error=None),
        tokens_per_second=Spread(**dict(zip(("low", "median", "high"), rates, strict=True))),
        step_ms=point.step_ms,
        phase_ms={phase: getattr(point, phase) for phase in PHASES if getattr(point, phase) is not None},
        overhead=None if plain_ms is None else round(point.step_ms / plain_ms, 4),
    )
