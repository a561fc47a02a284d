"""What a recorded run's method is worth, by the speeds that all tabs state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.experiments.record import Row
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from ui.records.figures import PageFigures
from ui.records.lanes import PLAIN_METHOD
from ui.records.origin import source_words
from ui.records.words import as_data


def recorded_worth(trace: dict[str, Any], page: PageFigures) -> dict[str, Any] | None:
    """Milliseconds of a plain step and of one of the run's method, its speedup, and where that was measured.

    Also that its forward was exact, as a live run says it of its own. "sized" is the step that was measured
    nearest to the run's own trees, as the tour takes it. None where its method was not measured.
    """
    name = trace["config"]["drafter"]["name"]
    for figures in page.of_base(trace["model"]["base"]):
        rows = {row.series: row for row in of_all_kinds(figures.record.rows)}
        plain, own = rows.get(PLAIN_METHOD), rows.get(name)
        if plain is not None and own is not None and own.speedup is not None:
            return {
                "timed_ms": [plain.step_ms, own.step_ms],
                "speedup": own.speedup.median,
                "nodes": own.tree_nodes or 1,
                "sized": _sized(trace, figures.record.rows, own),
                "exact": True,  # the C made the shipped runs: tests/ui/test_shipped.py decodes them
                "source": as_data(source_words(figures)),
            }
    return None


def _sized(trace: dict[str, Any], rows: Sequence[Row], own: Row) -> dict[str, float]:
    """Nodes and milliseconds of a step; by size only Medusa's were timed."""
    if own.series != MEDUSA:
        return {"nodes": own.tree_nodes or 1, "ms": own.step_ms}
    nodes = len(trace["steps"][0]["nodes"])
    nearest = min(step_times(rows), key=lambda step: abs(step["nodes"] - nodes))
    return {"nodes": nearest["nodes"], "ms": nearest["step_ms"]}
