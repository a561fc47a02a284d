"""The Decode tab: a prompt or a chat, the settings, the linked view of every step, and charts of the run.

Knows the page's parts and the session; the engine stays behind the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ui.chart_panel import DARK_THEME, ChartPanel
from ui.controls import build_controls
from ui.decode_view import DecodeView, message_trace
from ui.kept_runs import RunSlot
from ui.session import Session
from ui.shipped import Recording, recordings
from ui.tabs.chat import CHAT, ChatPanel
from ui.tabs.shared import (
    QUIET,
    SIDE_WIDTH,
    connect_run,
    drawn_along,
    kept_trace,
    message_of,
    run_bar,
    shown,
)
from ui.updates import StopFlag

COMPLETE = "complete"
MODES = [("Complete a text", COMPLETE), ("Chat", CHAT)]
# Moves of ε and δ re-judge the shown step in the browser; the server is not asked.
WHAT_IF = """(epsilon, delta) => {
  const view = document.querySelector("#decode-view");
  if (view) view.dispatchEvent(new CustomEvent("whatif", { detail: { epsilon, delta } }));
}"""


def build(session: Session, chosen: gr.State) -> None:
    """Lay the tab out and connect it. `chosen` holds the visitor's `Chosen`."""
    recorded = recordings(session.assets)
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            mode = gr.Radio(MODES, value=COMPLETE, show_label=False, container=False, elem_id="decode-mode")
            with gr.Column(elem_classes=["mode", "when-complete"]):
                bar = run_bar(session, "decode", "Run")
                picker = _picker(recorded)
            with gr.Column(elem_classes=["mode", "when-chat"]):
                chat = ChatPanel.build(session)
            with gr.Accordion("Settings", open=True, elem_id="decode-settings"):
                controls = build_controls(session.tree_choices(), session.rule_names(), chosen)
        with gr.Column(elem_classes="stage"):
            view = DecodeView(_message(recorded[0]) if recorded else None, elem_id="decode-view")
            charts = ChartPanel.build()

    def work(flag: StopFlag, slot: RunSlot, text: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        updates = session.decode(text, controls.settings(values), flag)
        for update in drawn_along(session, updates, slot):
            yield *shown(update), message_of(update)

    def draw(slot: RunSlot, dark: bool) -> tuple[Any, ...]:
        return charts.updates(kept_trace(session, slot), dark)

    # The charts are no outputs of the stream: gradio touches every output at every step.
    slot = gr.State(RunSlot())
    run = connect_run(session, bar, work, [slot, bar.prompt, *controls.inputs()], [view], chosen)
    reply = chat.connect(session, controls, view, slot)
    chat.connect_notice(session, mode, chosen)
    for event in (run, reply):
        event.then(draw, [slot, charts.dark], list(charts.plots), **QUIET)
    gr.on(
        [controls.epsilon.input, controls.delta.input],
        None, [controls.epsilon, controls.delta], None, js=WHAT_IF,
    )  # fmt: skip
    # The charts come after the first paint, in the theme the browser shows.
    painted = gr.context.Context.root_block.load(None, None, charts.dark, js=DARK_THEME)
    if recorded:
        painted.then(
            lambda dark: charts.updates(recorded[0].trace, dark), charts.dark, list(charts.plots), **QUIET
        )
        _connect_picker(recorded, picker, view, charts)


def _picker(recorded: list[Recording]) -> gr.Dropdown:
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


def _connect_picker(
    recorded: list[Recording], picker: gr.Dropdown, view: DecodeView, charts: ChartPanel
) -> None:
    by_name = {recording.name: recording for recording in recorded}

    def show(name: str, dark: bool) -> tuple[Any, ...]:
        return _message(by_name[name]), *charts.updates(by_name[name].trace, dark)

    picker.input(show, [picker, charts.dark], [view, *charts.plots], **QUIET)


def _message(recording: Recording) -> str:
    return message_trace(0, f"recorded-{recording.name}", recording.trace, "recorded run")
