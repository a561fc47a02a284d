"""What the Speed tab shows: records measured in this session, or else what is stored with the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError
from medusa_core.experiments import store
from medusa_core.experiments.record import ExperimentRecord, Row
from medusa_core.experiments.spec_bench import STEP as OF_NODES
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.figures.step_speed import StepTime, SweepPoint, phases_of
from ui.records.origin import origin_words
from ui.records.words import Words, sentences
from ui.runs.speed import NODES, STEP, SpeedUpdate
from ui.tabs.speed.words import busy_words, limit_words, table_rows, what_limits, where_words

STORED_METHODS = ("none", "medusa")
UNKNOWN = Words("Press Measure to learn what limits a step on this machine.")


@dataclass(
    frozen=True, eq=False
)  # compared and hashed as objects: a gr.State is, and records are dictionaries
class Results:
    """The newest record of each part, by its name, and what is stored of those that were not measured."""

    records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    steps: tuple[StepTime, ...] = ()  # stored, until a step is measured
    rows: tuple[dict[str, str], ...] = ()
    stored: Mapping[str, tuple[SweepPoint, ...]] = field(default_factory=dict)
    step_origin: str = ""
    sweep_origin: Mapping[str, str] = field(default_factory=dict)

    def with_record(self, update: SpeedUpdate) -> Results:
        """What was just measured in place of what there was of that part."""
        return replace(self, records={**self.records, update.part: update.record})

    def step_times(self) -> Sequence[StepTime]:
        """The bars."""
        record = self.records.get(STEP)
        return self.steps if record is None else [_step(*one) for one in record["methods"].items()]

    def table(self) -> Sequence[dict[str, str]]:
        """The cells below the bars."""
        record = self.records.get(STEP)
        return self.rows if record is None else table_rows(record["methods"])

    def sentence(self) -> str:
        """What limits a step here; before that is known, how to learn it."""
        record = self.records.get(STEP)
        return UNKNOWN if record is None else what_limits(record["methods"])

    def where(self) -> str:
        """What the bars and the table were measured on."""
        record = self.records.get(STEP)
        return self.step_origin if record is None else where_words(record)

    def warning(self) -> str:
        """That the machine was busy, where it was."""
        record = self.records.get(STEP)
        return "" if record is None else busy_words(record["machine"])

    def points(self, sweep: str) -> Sequence[SweepPoint]:
        """The curves of a sweep."""
        record = self.records.get(sweep)
        return self.stored.get(sweep, ()) if record is None else [_point(one) for one in record["points"]]

    def where_swept(self, sweep: str) -> str:
        """What they were measured on."""
        record = self.records.get(sweep)
        if record is None:
            return self.sweep_origin.get(sweep, "")
        return sentences(where_words(record), busy_words(record["machine"]))


def stored_results(assets: Path) -> Results:
    """The stored headline, where there is one: the steps of both methods, and Medusa's by nodes."""
    steps = _read(assets)
    found = Results()
    if steps is not None:
        of_all = {row.series: row for row in of_all_kinds(steps.rows)}
        rows = {name: of_all[name] for name in STORED_METHODS if name in of_all}
        unlimited = Words("The least time of a step was not measured there.")
        times = [
            StepTime(name, row.step_ms, phases_of(row.step_ms, row.phase_ms)) for name, row in rows.items()
        ]
        found = replace(
            found,
            steps=tuple(times),
            rows=tuple(_cells(name, row) for name, row in rows.items()),
            step_origin=sentences(origin_words(steps), unlimited),
            stored={NODES: tuple(_by_nodes(row) for row in steps.rows if row.series == OF_NODES)},
            sweep_origin={NODES: origin_words(steps)},
        )
    return found


def _read(assets: Path) -> ExperimentRecord | None:
    try:
        return store.record(store.HEADLINE, folder=assets / store.FOLDER)
    except MedusaError:  # the tab then says that nothing was measured
        return None


def _step(name: str, figures: Mapping[str, Any]) -> StepTime:
    phases = phases_of(figures["step_ms"], figures["phase_ms"])
    if "limits" not in figures:
        return StepTime(name, figures["step_ms"], phases)
    return StepTime(name, figures["step_ms"], phases, figures["limits"]["limit_ms"], limit_words(figures))


def _point(point: Mapping[str, Any]) -> SweepPoint:
    low, high = point["step_ms_range"]
    words = (
        f"<br>{low:.3f} to {high:.3f} in the rounds<br>{point['nodes']:g} nodes, "
        f"{point['tokens_per_step']:.2f} tokens per step, {point['tokens_per_second']:.0f} tokens/s"
    )
    limit = point["limits"]["limit_ms"] if "limits" in point else None
    return SweepPoint(point["method"], point["value"], point["step_ms"], low, high, limit, words)


def _by_nodes(row: Row) -> SweepPoint:
    words = f"<br>{row.tokens_per_step.mean:.2f} tokens per step, {row.tokens_per_second.median:.0f} tokens/s"
    nodes = row.tree_nodes or 1
    return SweepPoint(STORED_METHODS[nodes > 1], nodes, row.step_ms, words=words)


def _cells(name: str, row: Row) -> dict[str, str]:
    rate = row.tokens_per_second
    return {
        "method": name,
        "nodes": "" if row.tree_nodes is None else str(row.tree_nodes),
        "tokens/s": f"{rate.median:.0f} ({rate.low:.0f} to {rate.high:.0f})",
        "tokens per step": f"{row.tokens_per_step.mean:.2f}",
        "ms a step": f"{row.step_ms:.2f}",
        "overhead": "" if row.overhead is None else f"{row.overhead:.2f}",
        "speedup": "" if row.speedup is None else f"{row.speedup.median:.2f}",
    }
