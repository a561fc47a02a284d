"""Finished runs that Watch shows: recorded ones, uploaded ones, and those that a link names.

Each brings its prompt, its settings and its charts. What is uploaded is a text in an event: it is shown to
the page that sent it and kept nowhere. Files and pictures are made in the browser (`assets/web/share`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.experiments.record import Row
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from ui.components.events import AT_ONCE, QUIET, page_under_way, tell_script
from ui.components.views import DecodeView, TextLine
from ui.figures.charts import all_charts
from ui.records.examples import Recording
from ui.records.figures import PageFigures, source_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.messages import TURNING, message_refused, message_trace
from ui.records.outside import MOST_LINK_CHARACTERS, read_link, uploaded_trace
from ui.records.settings import BUDGETED, settings_of
from ui.records.words import Words, amount, as_data

TITLES = (
    "Tokens kept by each step", "Where the milliseconds go", "How often a guess of each depth was accepted",
    "The same by rank: a row adds up to its bar",
)  # fmt: skip
WHOLE_LINK = "Prompt and settings are those of the link: press Run."
PART_OF_LINK = (
    "The link’s settings were taken over; the prompt and the other settings stay as they were: press Run."
)
FAILED = "The file could not be read: it is larger than this server takes, or the server is busy."
# gradio gives a script no event data, so the view's element holds the text until it is fetched.
OPENED = """(_, dark) => {
  const host = document.querySelector("#decode-view .mdv-host");
  const text = host.openedTrace;
  delete host.openedTrace;
  return [text, dark];
}"""
CARRIED = f"""(_, dark, figures) => {{
  const parts = Object.fromEntries(new URLSearchParams(location.hash.slice("#run=".length)));
  return [JSON.stringify(parts).slice(0, {MOST_LINK_CHARACTERS + 1}), dark, figures];
}}"""
HAS_LINK = """() => {
  const host = document.querySelector("#decode-view .mdv-host");
  if (host && location.hash.startsWith("#run=")) host.dispatchEvent(new CustomEvent("linked"));
}"""


@dataclass(frozen=True)
class ChartPanel:
    """The plots, and a hidden flag that says whether the browser shows the dark theme."""

    plots: tuple[gr.Plot, ...]
    dark: gr.Checkbox

    @classmethod
    def build(cls) -> ChartPanel:
        dark = gr.Checkbox(visible=False)
        plots = []
        with gr.Accordion("Charts of the run", open=False, elem_id="charts"):
            for first in (0, 2):
                with gr.Row():
                    plots += [
                        gr.Plot(label=title, min_width=320, elem_id=f"chart-{first + i}")
                        for i, title in enumerate(TITLES[first : first + 2])
                    ]
        return cls(tuple(plots), dark)

    def updates(self, trace: dict[str, Any] | None, dark: bool, recording: bool = False) -> tuple[Any, ...]:
        """What to send to the plots: the figures of a finished run, nothing where there is none."""
        if trace is None:
            return tuple(gr.skip() for _ in self.plots)
        return all_charts(trace, dark, recording)


def recorded_menu(recorded: list[Recording]) -> gr.Dropdown:
    names = [recording.name for recording in recorded]
    return gr.Dropdown(
        names, value=names[0] if names else None, label="Recorded runs", visible=bool(names),
        info="explore a finished run; no model is needed for it", filterable=False, elem_id="recorded",
    )  # fmt: skip


def connect_recorded(
    recorded: list[Recording],
    figures: gr.State,
    picker: gr.Dropdown,
    settings: dict[str, Any],
    view: DecodeView,
    charts: ChartPanel,
    lines: list[TextLine],
) -> None:
    """Connect the menu of recordings; each sets prompt and controls to its own.

    ``lines`` describe an earlier run and are emptied.
    """
    by_name = {recording.name: recording for recording in recorded}

    def show(name: str, dark: bool, page: PageFigures) -> tuple[Any, ...]:
        one = by_name[name]
        drawn = charts.updates(one.trace, dark, recording=True)
        return recorded_message(one, page), *_held(settings, one.settings), *drawn, *("" for _ in lines)

    # What a recorded run says of its speed follows the figures of all tabs.
    worths = gr.JSON(visible=False)
    known = figures.change(
        lambda page: {_run(one): recorded_worth(one.trace, page) for one in recorded},
        figures, worths, **QUIET,
    )  # fmt: skip
    known.then(None, worths, None, js=tell_script(str(view.elem_id), "worths", ["worths"]))
    picker.input(
        show, [picker, charts.dark, figures], [view, *settings.values(), *charts.plots, *lines], **QUIET
    )


def recorded_message(recording: Recording, page: PageFigures, step: int | None = None) -> str:
    """Shows the run from ``step``; without one, from where ε and δ have something to show."""
    at = step if step is not None else TURNING if recording.rule == "typical" else 0
    return message_trace(
        _run(recording), recording.trace, "recorded run", recording.settings,
        recorded_worth(recording.trace, page), at,
    )  # fmt: skip


def _held(settings: Mapping[str, Any], own: Mapping[str, Any]) -> list[Any]:
    """Values for the prompt and the controls; what a run does not set stays as it is."""
    if own.get("tree") in BUDGETED:
        own = {**own, "budget": gr.Slider(value=own.get("budget", 16), visible=True)}
    return [own.get(name, gr.skip()) for name in settings]


def _run(recording: Recording) -> str:
    return f"recorded-{recording.name}"


def recorded_worth(trace: dict[str, Any], page: PageFigures) -> dict[str, Any] | None:
    """Milliseconds of a plain step and of one of the run's method, its speedup, and where that was measured.

    "sized" is the measured step whose tree is nearest in size to the run's, as in the tour. None where its
    method was not measured.
    """
    name = trace["config"]["drafter"]["name"]
    for figures in page.of_base(trace["model"]["base"]):
        rows = {row.series: row for row in of_all_kinds(figures.record.rows)}
        plain, own = rows.get(PLAIN_METHOD), rows.get(name)
        sized = _sized(trace, figures.record.rows, own) if own is not None else None
        if plain is not None and own is not None and own.speedup is not None and sized is not None:
            return {
                "timed_ms": [plain.step_ms, own.step_ms],
                "speedup": own.speedup.median,
                "nodes": own.tree_nodes or 1,
                "sized": sized,
                "source": as_data(source_words(figures)),
            }
    return None


def _sized(trace: dict[str, Any], rows: Sequence[Row], own: Row) -> dict[str, float] | None:
    """Nodes and milliseconds of a step; by size only Medusa's were timed, and not in each record."""
    nodes = len(trace["steps"][0]["nodes"])
    if own.series != MEDUSA:
        return {"nodes": own.tree_nodes or 1, "ms": own.step_ms}
    nearest = min(step_times(rows), key=lambda step: abs(step["nodes"] - nodes))
    if abs(nearest["nodes"] - nodes) > nodes / 4:  # a tree of two nodes says nothing about one of sixteen
        return None
    return {"nodes": nearest["nodes"], "ms": nearest["step_ms"]}


def connect_share(
    view: DecodeView,
    charts: ChartPanel,
    picker: gr.Dropdown,
    settings: Mapping[str, Any],
    status: TextLine,
    figures: gr.State,
    recorded: Sequence[Recording],
) -> None:
    """Connect the dialog "Share". ``settings`` are the prompt and the controls by name.

    ``status`` says what became of a link, which may name one of the runs in ``recorded``.
    """
    text = gr.Textbox(visible=False)
    by_name = {recording.name: recording for recording in recorded}

    def open_trace(text: str, dark: bool) -> tuple[Any, ...]:
        try:
            trace = uploaded_trace(text or "")
        except MedusaError as error:
            kept = (gr.skip() for _ in (picker, *settings, *charts.plots, status))
            return message_refused(str(error)), *kept
        own = settings_of(trace)
        note = Words("uploaded trace, {0}", amount(len(trace["steps"]), "step"))
        message = message_trace(uuid.uuid4().hex, trace, note, own)
        return message, None, *_held(settings, own), *charts.updates(trace, dark, recording=True), ""

    opened = view.upload(
        open_trace, [text, charts.dark], [view, picker, *settings.values(), *charts.plots, status],
        js=OPENED, **QUIET,
    )  # fmt: skip
    opened.failure(lambda: message_refused(FAILED), None, view, **AT_ONCE)

    def restore(carried: str, dark: bool, page: PageFigures) -> tuple[Any, ...]:
        try:
            link = read_link(carried or "", by_name)
        except MedusaError as error:
            words = Words("Nothing was taken from the link: {0}.", str(error).rstrip("."))
            return words, *(gr.skip() for _ in (view, picker, *settings, *charts.plots))
        if link.recorded is not None:
            one = by_name[link.recorded]
            shown = recorded_message(one, page, link.step), one.name, *_held(settings, one.settings)
            return "", *shown, *charts.updates(one.trace, dark, recording=True)
        values = link.settings
        taken = WHOLE_LINK if "prompt" in values else PART_OF_LINK
        return taken, gr.skip(), gr.skip(), *_held(settings, values), *(gr.skip() for _ in charts.plots)

    view.apply(
        restore, [text, charts.dark, figures], [status, view, picker, *settings.values(), *charts.plots],
        js=CARRIED, **QUIET,
    )  # fmt: skip
    page_under_way().load(None, None, None, js=HAS_LINK)
