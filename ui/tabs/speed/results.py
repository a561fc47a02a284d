"""What the Speed tab shows: the figures of all tabs, and the sweeps that were measured in this session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medusa_core.experiments.record import Row
from medusa_core.experiments.spec_bench import STEP as OF_NODES
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.figures.method_speeds import series_title
from ui.figures.step_speed import StepTime, SweepPoint, phases_of
from ui.records.figures import Figures, measured_figures, source_words
from ui.records.settings import Selection
from ui.records.words import Words, sentences
from ui.runs.speed import NODES, STEP, SpeedUpdate
from ui.tabs.speed.words import (
    busy_words,
    limit_words,
    other_load_words,
    table_rows,
    what_limits,
    where_words,
)

STORED_METHODS = ("none", "medusa")
UNLIMITED = Words("The least time of a step was not measured there.")
UNKNOWN = Words("Press Measure to learn what limits a step on this machine.")


@dataclass(frozen=True, eq=False)  # by identity, since gradio hashes what a state holds
class Results:
    """The figures of all tabs, and the newest record of each sweep by its name."""

    figures: Figures | None = None
    sweeps: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def with_record(self, update: SpeedUpdate, selection: Selection) -> Results:
        """What was just measured in place of what there was of that part."""
        if update.part == STEP:
            return replace(self, figures=measured_figures(update.record, selection))
        return replace(self, sweeps={**self.sweeps, update.part: update.record})

    def record(self, part: str) -> Mapping[str, Any] | None:
        """What ``bench --json`` prints of a part, where it was measured here."""
        return self.sweeps.get(part) if part != STEP else self._bench or None

    @property
    def _bench(self) -> Mapping[str, Any]:
        return self.figures.bench if self.figures else {}

    def _rows(self) -> list[Row]:
        rows = of_all_kinds(self.figures.record.rows) if self.figures else []
        return [row for row in rows if row.series in STORED_METHODS]

    def step_times(self) -> Sequence[StepTime]:
        """The bars."""
        if self._bench:
            return [_step(*one) for one in self._bench["methods"].items()]
        return [
            StepTime(row.series, row.step_ms, phases_of(row.step_ms, row.phase_ms)) for row in self._rows()
        ]

    def table(self) -> Sequence[dict[str, str]]:
        """The cells below the bars."""
        return table_rows(self._bench["methods"]) if self._bench else [_cells(row) for row in self._rows()]

    def sentence(self) -> str:
        """What limits a step here; before that is known, how to learn it."""
        return what_limits(self._bench["methods"]) if self._bench else UNKNOWN

    def where(self) -> str:
        """What the bars and the table were measured on."""
        if self.figures is None:
            return ""
        load = other_load_words(self._bench["machine"]) if self._bench else UNLIMITED
        return sentences(source_words(self.figures), load)

    def warning(self) -> str:
        """That the machine was busy, where it was."""
        return busy_words(self._bench["machine"]) if self._bench else ""

    def points(self, sweep: str) -> Sequence[SweepPoint]:
        """The curves of a sweep."""
        if sweep in self.sweeps:
            return [_point(one) for one in self.sweeps[sweep]["points"]]
        rows = self.figures.record.rows if self.figures and sweep == NODES else ()
        return [_by_nodes(row) for row in rows if row.series == OF_NODES] or [
            _by_nodes(row) for row in self._rows() if sweep == NODES
        ]

    def where_swept(self, sweep: str) -> str:
        """What they were measured on."""
        record = self.sweeps.get(sweep)
        if record is None:
            return source_words(self.figures) if self.figures and sweep == NODES else ""
        return sentences(where_words(record), busy_words(record["machine"]))


def _step(name: str, figures: Mapping[str, Any]) -> StepTime:
    limit = (figures["limits"]["limit_ms"], limit_words(figures)) if "limits" in figures else ()
    return StepTime(name, figures["step_ms"], phases_of(figures["step_ms"], figures["phase_ms"]), *limit)


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


def _cells(row: Row) -> dict[str, str]:
    rate = row.tokens_per_second
    return {
        "method": series_title(row.series),
        "nodes": "" if row.tree_nodes is None else str(row.tree_nodes),
        "tokens/s": f"{rate.median:.0f} ({rate.low:.0f} to {rate.high:.0f})",
        "tokens per step": f"{row.tokens_per_step.mean:.2f}",
        "ms a step": f"{row.step_ms:.2f}",
        "overhead": "" if row.overhead is None else f"{row.overhead:.2f}",
        "speedup": "" if row.speedup is None else f"{row.speedup.median:.2f}",
    }
