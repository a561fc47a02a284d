"""The last part of the Hardware tab: the same things measured here and now on the loaded model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from ui.components.events import DRAWS
from ui.components.views import TextLine
from ui.figures.hardware import (
    Growth,
    Kinds,
    Passes,
    Products,
    growth_chart,
    kinds_chart,
    passes_chart,
    products_chart,
    with_source,
)
from ui.records.examples import example_texts
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.records.words import Words, sentences
from ui.runs.session import Session
from ui.tabs.hardware.choice import Choice
from ui.tabs.hardware.measuring import Found, measure_cache, measure_passes, measure_products, measure_sharing
from ui.tabs.openings import RecordedHardware, recorded
from ui.tabs.run_bar import connect_run, or_skip, run_buttons, shown

PASSES, CACHE, SHARING, PRODUCTS = "passes", "cache", "sharing", "products"
PASSES_NOTE = """<p class="note">What to see: up to a certain number of tokens a pass takes no longer than
with one; Medusa’s candidates use that room. The blue part is the least that this machine needs; the rest
is overhead.</p>"""
CACHE_NOTE = """<p class="note">What to see: with the cache the time of a token hardly grows with the
text; without it every token reads the whole text again.</p>"""
PRODUCTS_NOTE = """<p class="note">What to see: figures 9 to 20 of the paper, on this machine. With one
token, linear layers lie on the left, where memory is the limit; batch and candidates move them to the right.
Attention moves only with candidates, since each text of a batch brings its own keys. A mark above the roof
says that the limits were measured too low.</p>"""
KINDS_NOTE = """<p class="note">What to see: three models that differ only in how their query heads
share keys and values: with MHA not at all, with GQA in groups, with MQA all of them. The cache shrinks by the
size of a group, and after a long text so does the time that reading it takes.</p>"""


def build(session: Session, choice: Choice, triggers: list[Any]) -> None:
    """Lay the part out and connect it."""
    with gr.Row():
        what = gr.Radio(
            [("this machine, and passes by tokens", PASSES), ("with and without a cache", CACHE),
             ("MHA, GQA, MQA", SHARING), ("products and the roof", PRODUCTS)],
            value=PASSES, label="What to measure", elem_id="live-what", min_width=320,
        )  # fmt: skip
        tokens = gr.Slider(
            16, 512, value=128, step=16, label="Tokens to write", info="with and without a cache",
            elem_id="live-tokens", min_width=200,
        )  # fmt: skip
    bar = run_buttons("live", "Measure")
    before = recorded(RecordedHardware, session.assets)
    first: tuple[Any, ...] = Passes(), Growth(), Kinds(), Products()
    if before:
        first = before.passes, before.growth, before.kinds, before.products
        said = Words("Charts marked “recorded” show a record.")
        TextLine(sentences(said, before.origin.words), elem_id="live-recorded", elem_classes="badge")
    states = [gr.State(each) for each in first]
    with gr.Row():
        with gr.Column(min_width=320):
            passes = gr.Plot(label="Time of a pass by tokens: measured and predicted", elem_id="live-passes")
            gr.HTML(PASSES_NOTE, apply_default_css=False)
        with gr.Column(min_width=320):
            growth = gr.Plot(label="Time of a token as the text grows", elem_id="live-growth")
            gr.HTML(CACHE_NOTE, apply_default_css=False)
    with gr.Row():
        held = gr.Plot(label="Cache of MHA, GQA and MQA", min_width=320, elem_id="live-held")
        kinds = gr.Plot(label="Time of a token", min_width=320, elem_id="live-kinds")
    gr.HTML(KINDS_NOTE, apply_default_css=False)
    products = gr.Plot(label="Measured speed of a step’s products, and the roof", elem_id="live-products")
    gr.HTML(PRODUCTS_NOTE, apply_default_css=False)

    def work(flag: StopFlag, name: str, count: int, own: Selection) -> Iterator[tuple[Any, ...]]:
        for found in measure(session, name, count, own, flag):
            records = (found.machine, found.passes, found.growth, found.kinds, found.products)
            yield *shown(found), *map(or_skip, records)

    # New records trigger the drawing: the charts are not outputs of the stream.
    connect_run(
        session, bar, work, [what, tokens, choice.selection], [choice.machine, *states], choice.selection
    )
    drawn: tuple[tuple[tuple[Any, ...], list[gr.Plot]], ...] = (
        ((passes_chart,), [passes]),
        ((growth_chart,), [growth]),
        ((partial(kinds_chart, bytes_held=True), kinds_chart), [held, kinds]),
        ((products_chart,), [products]),
    )
    for record, state, (charts, plots) in zip(first, states, drawn, strict=True):
        draw = partial(draw_all, charts, record)
        gr.on([*triggers, state.change], draw, [state, choice.dark], plots, **DRAWS)


def draw_all(charts: Sequence[Callable[..., go.Figure]], record: Any, found: Any, dark: bool) -> Any:
    """The charts of what was found, marked where that is the record."""
    figures = [with_source(chart(found, dark), recorded=found == record, dark=dark) for chart in charts]
    return figures if len(figures) > 1 else figures[0]


def measure(
    session: Session, name: str, tokens: int, selection: Selection, flag: StopFlag
) -> Iterator[Found]:
    """One measurement on the visitor's engine, in its turn and within the page's time limit."""
    # Not nested functions: another process may have to unpickle them.
    if name == CACHE:
        prompt = example_texts(session.assets)[0]
        work: Any = partial(measure_cache, flag=flag, prompt=prompt, tokens=int(tokens))
    else:
        others = {PASSES: measure_passes, SHARING: measure_sharing, PRODUCTS: measure_products}
        work = partial(others[name], flag=flag)
    yield from session.on_engine(work, selection, flag, kind=Found)
