"""The line above the tabs, once this machine was measured: whose speeds the tabs show, and the way back."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui.components.events import QUIET, page_under_way
from ui.components.text_line import TextLine
from ui.records.figures import PageFigures
from ui.records.origin import source_words
from ui.session import Session


def build(session: Session, selection: gr.State) -> gr.State:
    """Lay the line out and connect it; returns the page's `PageFigures`, which the tabs show and add to."""
    figures = gr.State(session.figures.begin())
    with gr.Row(visible=False, elem_id="figures-bar") as bar:
        words = TextLine(elem_id="figures-words", elem_classes="badge")
        back = gr.Button(
            "Back to the recorded speeds", size="sm", scale=0, min_width=240, elem_id="figures-back"
        )
    inputs = [figures, selection]
    page_under_way().load(session.figures.choose, inputs, figures, **QUIET)
    selection.change(session.figures.choose, inputs, figures, **QUIET)
    back.click(session.figures.forget, figures, figures, **QUIET)
    figures.change(_said, figures, [bar, words], **QUIET)
    return figures


def _said(page: PageFigures) -> tuple[Any, Any]:
    own = page.own
    return gr.Row(visible=own is not None), source_words(own) if own else gr.skip()
