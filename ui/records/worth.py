"""What a recorded run's method is worth, by the speeds that all tabs state."""

from __future__ import annotations

from typing import Any

from medusa_core.experiments.spec_bench import of_all_kinds
from ui.records.figures import PageFigures
from ui.records.lanes import PLAIN_METHOD
from ui.records.origin import source_words
from ui.records.words import as_data


def recorded_worth(trace: dict[str, Any], page: PageFigures) -> dict[str, Any] | None:
    """Milliseconds of a plain step and of one of the run's method, its speedup, and where that was measured.

    None where its method was not measured.
    """
    name = trace["config"]["drafter"]["name"]
    for figures in page.of_base(trace["model"]["base"]):
        rows = {row.series: row for row in of_all_kinds(figures.record.rows)}
        plain, own = rows.get(PLAIN_METHOD), rows.get(name)
        if plain is not None and own is not None and own.speedup is not None:
            return {
                "timed_ms": [plain.step_ms, own.step_ms],
                "speedup": own.speedup.median,
                "source": as_data(source_words(figures)),
            }
    return None
