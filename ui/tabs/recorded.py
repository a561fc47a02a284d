"""The recorded runs of Watch: their menu, and how one comes on screen with its prompt and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.experiments.record import Row
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from ui.components.chart_panel import ChartPanel
from ui.components.decode_view import TURNING, DecodeView, message_trace
from ui.components.events import QUIET, tell_script
from ui.components.text_line import TextLine
from ui.records.examples import Recording
from ui.records.figures import PageFigures, source_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.words import as_data


def recorded_menu(recorded: list[Recording]) -> gr.Dropdown:
    names = [recording.name for recording in recorded]
    return gr.Dropdown(
        names,
        value=names[0] if names else None,
        label="Recorded runs",
        info="explore a finished run; no model is needed for it",
        filterable=False,
        visible=bool(names),
        elem_id="recorded",
    )


def connect_recorded(
    recorded: list[Recording],
    figures: gr.State,
    picker: gr.Dropdown,
    settings: dict[str, Any],
    view: DecodeView,
    charts: ChartPanel,
    lines: list[TextLine],
) -> None:
    """A recording brings prompt and controls along: what they hold is what is shown.

    ``lines`` tell of a run before, and are emptied.
    """
    by_name = {recording.name: recording for recording in recorded}
    parts = {name: part for name, part in settings.items() if name in recorded[0].settings}

    def show(name: str, dark: bool, page: PageFigures) -> tuple[Any, ...]:
        recording = by_name[name]
        values = (recording.settings[part] for part in parts)
        empty = [""] * len(lines)
        return recorded_message(recording, page), *values, *charts.updates(recording.trace, dark), *empty

    # What a recorded run says of its speed follows the figures of all tabs.
    worths = gr.JSON(visible=False)
    known = figures.change(
        lambda page: {_run(one): recorded_worth(one.trace, page) for one in recorded},
        figures, worths, **QUIET,
    )  # fmt: skip
    known.then(None, worths, None, js=tell_script(str(view.elem_id), "worths", ["worths"]))
    picker.input(
        show, [picker, charts.dark, figures], [view, *parts.values(), *charts.plots, *lines], **QUIET
    )


def recorded_message(recording: Recording, page: PageFigures, step: int | None = None) -> str:
    """Shows the run from ``step``; without one, from where ε and δ have something to show."""
    at = step if step is not None else TURNING if recording.rule == "typical" else 0
    return message_trace(
        0, _run(recording), recording.trace, "recorded run", recording.settings,
        recorded_worth(recording.trace, page), at,
    )  # fmt: skip


def _run(recording: Recording) -> str:
    return f"recorded-{recording.name}"


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
