"""What the view's dialog "Share" asks of the server: to check a trace from a file, and what a link carries.

Files and pictures are made in the browser (`assets/web/share`). What is uploaded here is a text in an event:
it is shown to the page that sent it and kept nowhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.chart_panel import ChartPanel
from ui.components.decode_view import DecodeView, message_refused, message_trace
from ui.components.events import QUIET, page_under_way
from ui.components.text_line import TextLine
from ui.records.examples import Recording
from ui.records.figures import PageFigures
from ui.records.link import read_link
from ui.records.outside import MOST_LINK_CHARACTERS, uploaded_trace
from ui.records.settings import BY_BUDGET, settings_of
from ui.records.words import Words, amount
from ui.tabs.recorded import recorded_message

WHOLE_LINK = "Prompt and settings are those of the link: press Run."
PART_OF_LINK = (
    "What the link has is taken over; the prompt and the other settings stay as they were: press Run."
)
FAILED = "The file could not be read: it is larger than this server takes, or the server is busy."
# gradio hands no data of an event to a script, so the view's element holds the text until it is fetched.
OPENED = """(_, dark) => {
  const host = document.querySelector("#decode-view .mdv-host");
  const text = host.openedTrace;
  delete host.openedTrace;
  return [text, dark];
}"""
CARRIED = f"""(_, dark, figures) => {{
  const text = location.hash.slice("#run=".length);
  const most = {MOST_LINK_CHARACTERS + 1};
  try {{
    const old = text.startsWith("%7B") || text.startsWith("{{");
    const parts = () => JSON.stringify({{ link: Object.fromEntries(new URLSearchParams(text)) }});
    return [(old ? decodeURIComponent(text) : parts()).slice(0, most), dark, figures];
  }} catch {{
    return ["", dark, figures];
  }}
}}"""
HAS_LINK = """() => {
  const host = document.querySelector("#decode-view .mdv-host");
  if (host && location.hash.startsWith("#run=")) host.dispatchEvent(new CustomEvent("linked"));
}"""


def connect(
    view: DecodeView,
    charts: ChartPanel,
    picker: gr.Dropdown,
    settings: Mapping[str, Any],
    status: TextLine,
    figures: gr.State,
    recorded: Sequence[Recording],
) -> None:
    """Connect the dialog. ``settings`` are the prompt and the controls by name, ``status`` says of a link.

    ``recorded`` are the runs that a link may name.
    """
    text = gr.Textbox(visible=False)
    by_name = {recording.name: recording for recording in recorded}

    def open_trace(text: str, dark: bool) -> tuple[Any, ...]:
        try:
            trace = uploaded_trace(text or "")
        except MedusaError as error:
            return message_refused(str(error)), gr.skip(), *(gr.skip() for _ in (*settings, *charts.plots))
        own = settings_of(trace)
        note = Words("uploaded trace, {0}", amount(len(trace["steps"]), "step"))
        message = message_trace(0, uuid.uuid4().hex, trace, note, own)
        held = (own.get(name, gr.skip()) for name in settings)
        return message, None, *held, *charts.updates(trace, dark)

    opened = view.upload(
        open_trace, [text, charts.dark], [view, picker, *settings.values(), *charts.plots], js=OPENED, **QUIET
    )
    opened.failure(lambda: message_refused(FAILED), None, view, queue=False, **QUIET)

    def restore(carried: str, dark: bool, page: PageFigures) -> tuple[Any, ...]:
        try:
            link = read_link(carried or "", by_name)
        except MedusaError as error:
            words = Words("Nothing of the link was taken over: {0}.", str(error).rstrip("."))
            return words, *(gr.skip() for _ in (view, picker, *settings, *charts.plots))
        if link.recorded is not None:
            recording = by_name[link.recorded]
            own = (recording.settings.get(name, gr.skip()) for name in settings)
            message = recorded_message(recording, page, link.step)
            return "", message, recording.name, *own, *charts.updates(recording.trace, dark)
        values = link.settings
        held: dict[str, Any] = {name: values.get(name, gr.skip()) for name in settings}
        if values.get("tree") == BY_BUDGET:
            held["budget"] = gr.Slider(value=values.get("budget", 16), visible=True)
        taken = WHOLE_LINK if "prompt" in values else PART_OF_LINK
        return taken, gr.skip(), gr.skip(), *held.values(), *(gr.skip() for _ in charts.plots)

    view.apply(
        restore, [text, charts.dark, figures], [status, view, picker, *settings.values(), *charts.plots],
        js=CARRIED, **QUIET,
    )  # fmt: skip
    page_under_way().load(None, None, None, js=HAS_LINK)
