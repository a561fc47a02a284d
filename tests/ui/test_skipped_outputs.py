"""What an event skips costs nothing: gradio would make the component anew for every message of a stream."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from ui.components.text_line import TextLine
from ui.serving.kept_runs import KeptRuns
from ui.serving.page import Page
from ui.serving.page_channel import PageChannel

VALUES = {
    "values": ["words", "more", "text", 1],
    "skips": ["words", gr.skip(), "text", gr.skip()],
    "one value": [gr.skip(), gr.skip(), "text", gr.skip()],
    "only skips": [gr.skip(), gr.skip(), gr.skip(), gr.skip()],
    "a change": [gr.update(visible=False), gr.skip(), gr.update(value="x"), 1],
    "one skip for all": gr.skip(),
}


@pytest.fixture
def page():
    with Page(PageChannel(), KeptRuns()) as page:
        outputs = [TextLine(), TextLine(), gr.Textbox(), gr.State()]
        gr.Button().click(lambda: None, None, outputs)
    return page


def run_apart(coroutine):
    """The result, made in another thread: a browser's tests leave a running loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def told(page, values):
    """What the browser is told, by our page and by gradio's own way."""
    function = next(iter(page.fns.values()))
    # Copies: gradio takes the value out of an update.
    ours = run_apart(page.postprocess_data(function, deepcopy(values), SessionState(page)))
    theirs = run_apart(gr.Blocks.postprocess_data(page, function, deepcopy(values), SessionState(page)))
    return [without_noise(value) for value in ours], [without_noise(value) for value in theirs]


def without_noise(value):
    """An update without the mark of an update among the props, which gradio leaves there for HTML."""
    if isinstance(value, dict) and value.get("props") == gr.skip():
        del value["props"]
    return value


@pytest.mark.parametrize("name", VALUES)
def test_the_browser_is_told_what_gradio_would_tell_it(page, name):
    ours, theirs = told(page, VALUES[name])
    assert ours == theirs
    assert len(ours) == 4


def test_no_component_is_made_for_what_is_skipped(page, monkeypatch):
    made = []
    monkeypatch.setattr(TextLine, "__init__", lambda self, *args, **kwargs: made.append(self))
    function = next(iter(page.fns.values()))
    state = SessionState(page)
    for number in range(5):
        run_apart(page.postprocess_data(function, [f"step {number}", gr.skip(), gr.skip(), 1], state))
    assert made == []
