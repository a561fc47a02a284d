"""Measures Spec-Bench's comparison; what it is and its settings are in the package."""

from __future__ import annotations

from medusa_core.drafters import method
from medusa_core.evaluation.bench import BASELINE
from medusa_core.evaluation.turns import MethodLog
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.experiments.spec_bench import ALL, Settings


def measure(setup: Setup, settings: Settings) -> Findings:
    """Greedy runs of all methods that the engine can run; rows by kind and method. Raises MedusaError."""
    engine = setup.engine
    names = list(dict.fromkeys([BASELINE, *engine.methods()]))
    logs = setup.interleave({name: setup.runner(engine, method=name) for name in names})
    kinds = setup.places() | {ALL: range(len(setup.all_prompts))}
    rows = [
        _row(name, logs[name].only(places), logs[BASELINE].only(places), kind)
        for kind, places in kinds.items()
        for name in names
    ]
    return Findings(rows, [_fastest(rows, list(kinds)), _identical(logs)])


def _row(name: str, log: MethodLog, base: MethodLog, kind: str) -> Row:
    nodes = max(run.nodes for runs in log.rounds for run in runs)
    return make_row(log, base, series=name, label=kind, tree_nodes=nodes)


def _fastest(rows: list[Row], kinds: list[str]) -> str:
    """The method with most tokens per second of each kind, in a sentence."""
    found = []
    for kind in kinds:
        of_kind = (row for row in rows if row.label == kind)
        best = max(of_kind, key=lambda row: row.tokens_per_second.median)
        found.append(f"{kind}: {best.series}")
    return f"Fastest by kind of text: {', '.join(found)}."


def _identical(logs: dict[str, MethodLog]) -> str:
    """How many texts of each method are plain decoding's."""
    plain = [run.tokens for run in logs[BASELINE].rounds[0]]
    same = {
        name: sum(run.tokens == text for run, text in zip(log.rounds[0], plain, strict=True))
        for name, log in logs.items()
        if method(name).mark  # it drafts something
    }
    counts = ", ".join(f"{name} {count}" for name, count in same.items())
    return f"Texts identical to plain decoding's, of {len(plain)}: {counts}."
