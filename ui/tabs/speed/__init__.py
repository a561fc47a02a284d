"""The Speed tab: a press measures what a step takes on this machine, and says what limits it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from medusa_core.config import GenerationConfig
from ui.components.events import AT_ONCE, DRAWS, QUIET, SAVE
from ui.components.figure_table import grid, html_part, wrap
from ui.components.views import TextLine
from ui.figures.step_speed import step_bars, sweep_curves
from ui.records.examples import example_prompts
from ui.records.settings import COPIES_HELP, COPIES_LABEL, Selection, menu_entries, whole_method
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.runs.speed import BATCH, CONTEXT, DTYPE, EXACT, NODES, QUICK, STEP, SpeedRequest, SpeedUpdate
from ui.tabs.run_bar import SIDE_WIDTH, connect_run, run_buttons, shown
from ui.tabs.speed.results import CAPTION, LEAST, LEAST_CAPTION, Results, command_line

INTRO = """
<p class="note">A step cannot be faster than its bytes take at this machine’s bandwidth, nor than its
operations take at its peak. Measure finds both, times the steps of plain decoding and of a method in turn,
and draws the least time as a line on the bars, the limit: what lies right of it could be saved.</p>
"""
CURVES_NOTE = """<p class="note">What to see: nodes and texts at once are cheap as long as a step waits for
memory, and cost in proportion once it computes; a longer text adds attention for every node.</p>"""
PARTS = [
    ("one step, phase by phase", STEP), ("curve: nodes of the tree", NODES),
    ("curve: length of the text", CONTEXT), ("curve: texts at once", BATCH), ("curve: dtype", DTYPE),
]  # fmt: skip
EFFORTS = {"quick": QUICK, "exact": EXACT}
FILE = "speed.json"
NOTHING_TO_SAVE = "None of this has been measured yet: press Measure first."


def build(session: Session, selection: gr.State, figures: gr.State, opened: list[Any]) -> gr.Dropdown:
    """Lay the tab out and connect it; returns its menu of methods.

    `selection` holds a `Selection`, `figures` the `PageFigures`.
    """
    stored = Results(session.figures.begin().stored)
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            offered = [entry for entry in PARTS if entry[1] != DTYPE or session.policy.free_choice]
            part = gr.Radio(offered, value=STEP, label="What to measure", elem_id="speed-part")
            menu = gr.Dropdown(
                menu_entries(), value=GenerationConfig.method,
                label="Method", info="measured in turn with plain decoding", filterable=False,
                elem_id="speed-method",
            )  # fmt: skip
            copies = gr.Checkbox(label=COPIES_LABEL, info=COPIES_HELP, elem_id="speed-copies")
            effort = gr.Radio(
                [("quick, some 15 seconds", "quick"), ("more exact, a minute or more", "exact")],
                value="quick", label="How exactly", elem_id="speed-effort",
            )  # fmt: skip
            bar = run_buttons("speed", "Measure")
            save = gr.Button("Download as JSON", elem_id="speed-save")
            command = html_part("", "speed-command")
        with gr.Column(elem_classes="stage"):
            gr.HTML(INTRO, apply_default_css=False)
            words = TextLine(stored.sentence(), elem_id="speed-words", elem_classes="status")
            warning = TextLine(elem_id="speed-warning", elem_classes="status")
            where = TextLine(stored.where(), elem_id="speed-where", elem_classes="badge")
            bars = gr.Plot(label="Milliseconds of a step by phase", elem_id="speed-bars")
            table = html_part(_table(stored), "speed-table")
            curves = gr.Plot(label="Milliseconds of a step along a sweep", elem_id="speed-curves")
            where_swept = TextLine(elem_id="speed-where-swept", elem_classes="badge")
            gr.HTML(CURVES_NOTE, apply_default_css=False)
    results, dark = gr.State(stored), gr.Checkbox(visible=False)
    file = [gr.Textbox(visible=False), gr.Textbox(visible=False)]  # its name and its text
    kinds = example_prompts(session.assets)
    texts = tuple(prompt["text"] for kind in kinds for prompt in kind["prompts"])

    def work(
        flag: StopFlag, part: str, name: str, copied: bool, effort: str, known: Results, chosen: Selection
    ) -> Iterator[tuple[Any, ...]]:
        request = SpeedRequest(part, whole_method(name, copied), texts, EFFORTS[effort], chosen)
        for update in session.run(request, flag):
            new: tuple[Any, ...] = (gr.skip(), gr.skip())
            if isinstance(update, SpeedUpdate):
                known = known.with_record(update, chosen)
                new = (known, _command(session, update, chosen))
            yield (*shown(update), *new)

    inputs = [part, menu, copies, effort, results, selection]
    run = connect_run(session, bar, work, inputs, [results, command], selection)
    run.then(
        lambda found, page: session.figures.adopt(page, found.figures), [results, figures], figures, **QUIET
    )
    figures.change(
        lambda page, known: replace(known, figures=page.of_speed), [figures, results], results, **QUIET
    )
    # A new record triggers the drawing: the charts are not outputs of the stream.
    drawn = [words, warning, where, bars, table, curves, where_swept]
    gr.on([*opened, results.change, part.input], draw, [results, part, dark], drawn, **DRAWS)
    packed = save.click(_packed, [results, part], [*file, bar.status], **AT_ONCE)
    packed.then(None, file, None, js=SAVE, **QUIET)
    return menu


def draw(results: Results, part: str, dark: bool) -> tuple[Any, ...]:
    """All that stands beside the controls; the curves are the chosen ones, else those last measured."""
    swept = list(results.sweeps)
    sweep = part if part != STEP else swept[-1] if swept else NODES
    points = results.points(sweep)
    along = len({point.name for point in points}) < len(points)  # one point a method makes no curve
    curves = sweep_curves(sweep, points, dark) if along else None
    return (
        results.sentence(), results.warning(), results.where(), step_bars(results.step_times(), dark),
        _table(results), gr.Plot(curves, visible=along), results.where_swept(sweep) if along else "",
    )  # fmt: skip


def _table(results: Results) -> str:
    rows = results.table()
    known = any(row.get(LEAST) for row in rows)
    return wrap(grid([CAPTION, *([LEAST_CAPTION] if known else [])], rows)) if rows else ""


def _command(session: Session, update: SpeedUpdate, chosen: Selection) -> str:
    record, load = update.record, session.models.config_of(chosen)
    public = session.policy.public
    line = command_line(update.flags, load, record["machine"], record["model"]["device"], public=public)
    return wrap(f"<p class='quiet'>On the command line:<br><code>{html.escape(line)}</code></p>")


def _packed(results: Results, part: str) -> tuple[Any, ...]:
    """The name and the record as `bench --json` writes it, and what to say where there is none."""
    record = results.record(part)
    if record is None:
        return "", "", NOTHING_TO_SAVE
    return FILE, json.dumps(record, ensure_ascii=False), gr.skip()
