"""The Learn tab: cards over recorded runs, and the link to it at the top of the page."""

from __future__ import annotations

import json

import gradio as gr

from medusa_core.training.config import Medusa1Config
from ui.components.events import QUIET
from ui.components.learn_view import ANSWERED, ASKED, LearnView, learn_content
from ui.records.examples import Recording
from ui.records.figures import PageFigures
from ui.records.lessons import lesson_records, lesson_runs, lesson_texts
from ui.runs.session import Session
from ui.tabs.learn_computed import answered, computed_records

TAB = "learn-tab"
# The tab is mounted when it is first opened; its first card then takes the focus, so that keys work at once.
OPEN = """() => {
  document.getElementById(TAB + "-button")?.click();
  const start = (frames) => {
    const title = document.querySelector(".learn-title");
    if (title && title.offsetParent) title.focus({ preventScroll: true });
    else if (frames) requestAnimationFrame(() => start(frames - 1));
  };
  start(300);
}"""


def link() -> None:
    """The line of the first screen that leads a newcomer to the tab, without the server."""
    gr.Button("New here? Start the tour", elem_id="start-tour", size="sm").click(
        None, None, None, js=OPEN.replace("TAB", json.dumps(TAB))
    )


def build(session: Session, figures: gr.State, recorded: list[Recording]) -> None:
    """Lay the tab out over the first recorded run. Where there is none, it says so."""
    if not recorded:
        gr.HTML("<p class='note'>There is no recorded run that the tour could be told with.</p>")
        return
    trace, runs = recorded[0].trace, lesson_runs(recorded)

    def content(page: PageFigures) -> str:
        records = lesson_records(Medusa1Config().head_decay, page) | computed_records(page)
        return learn_content(lesson_texts(), records, trace, runs)

    view = LearnView(content(session.figures.begin()), elem_id="learn-view")
    figures.change(content, figures, view, **QUIET)
    asked, answer = gr.Textbox(visible="hidden"), gr.Textbox(visible="hidden")
    view.ask(
        lambda text, page: answered(text, page.shown), [asked, figures], answer,
        js=ASKED, queue=False, trigger_mode="always_last", **QUIET,
    ).then(None, answer, None, js=ANSWERED)  # fmt: skip
