"""The first part of the Hardware tab: where each product of a step lies under a device's roof."""

from __future__ import annotations

from typing import Any

import gradio as gr

from medusa_core.hardware.devices import TERA
from medusa_core.hardware.operators import (
    DECODE,
    DEVICE,
    PARALLEL,
    Work,
    operators,
    paper_speeds,
    phases,
    step_seconds,
    timed,
)
from medusa_core.words import bytes_words, flops_words, seconds_words
from ui.components.figure_table import grid, html_part, wrap
from ui.components.views import TextLine
from ui.figures.hardware import roofline_chart
from ui.records.words import Words
from ui.runs.session import Session
from ui.tabs.hardware.choice import Choice, Chosen, connect_drawing, work_sliders

NOTE = """<p class="note">How to read it: a mark is a matrix product of a step, filled for one with weights,
hollow for one of attention. Across: how many operations it does for each byte that it reads or writes. Up:
how many a second the device then allows. On the slanted line memory is the limit, on the flat one
arithmetic; the corner between them is the ridge. Stars: what the paper measured.</p>
<p class="note">What to see: a plain step (circles) lies leftmost; more candidates move its products to the
right, and the line above says how much longer the step then takes. Reading a prompt (squares) computes the
output layer for the last token alone, so that square lies as far left. Of a layer’s products, q, k and v make
queries, keys and values, qk and pv are the attention between them, and o, gate, up and down are the weights
after it.</p>
<p class="note">FlashAttention never writes the scores between qk and pv to memory: the hollow marks of a
prompt move to the right. PagedAttention moves no mark: it hands the cache out in pages, so that more texts
fit, and a larger batch moves the filled marks to the right. Learn has a card on both.</p>"""
CANDIDATES = (1, 16, 32, 48, 64, 80, 96, 112)
BATCHES, LENGTHS = (1, 2, 4, 8, 16, 32, 64), (128, 256, 512, 1024, 2048, 4096, 8192)
BY_BATCH, BY_LENGTH = "batch ↓ candidates →", "length ↓ candidates →"
SWEEP_NOTE = "FLOP a byte by the formulas, as the paper prints them, and the TFLOP/s that the roof allows."


def build(session: Session, choice: Choice, triggers: list[Any]) -> None:
    """Lay the part out and connect it; it is drawn at ``triggers`` and whenever a control moves."""
    with gr.Row():
        sliders = work_sliders("hardware", candidates=64)
    words = TextLine(elem_id="hardware-words", elem_classes="status")
    plot = gr.Plot(
        label="Roofline by formula, with the speeds that the paper measured", elem_id="hardware-roofline"
    )
    gr.HTML(NOTE, apply_default_css=False)
    table = html_part("", "hardware-table")
    connect_drawing(
        session, choice, draw, [*triggers, *(slider.input for slider in sliders)], sliders, words,
        [plot, table],
    )  # fmt: skip


def draw(chosen: Chosen, batch: int, tokens: int, context: int) -> tuple[Any, ...]:
    """A sentence, the roofline and the table of the step's products."""
    steps = phases(Work(batch, tokens, context))
    products = {name: operators(chosen.shape, work) for name, work in steps.items()}
    seconds = {name: step_seconds(chosen.shape, work, chosen.device) for name, work in steps.items()}
    published = paper_speeds() if chosen.device.name == DEVICE else ()
    figure = roofline_chart(chosen.device, products, published, chosen.dark)
    words = Words(
        "At best {0} for a plain step and {1} for one over {2} candidates: {3} times as long.",
        seconds_words(seconds[DECODE]), seconds_words(seconds[PARALLEL]), tokens,
        f"{seconds[PARALLEL] / seconds[DECODE]:.2f}",
    )  # fmt: skip
    return words, figure, wrap(table_of(chosen, steps[PARALLEL]) + sweeps_of(chosen))


def sweeps_of(chosen: Chosen) -> str:
    """The paper's tables 6 to 8 for the chosen model and device, folded, as markup."""
    of_batches = {batch: (batch, 1024) for batch in BATCHES}
    parts = [
        _sweep(chosen, title, name, sides, works)
        for title, name, sides, works in (
            ("Table 6: attention at batch 16, by length", "qk", BY_LENGTH, {s: (16, s) for s in LENGTHS}),
            ("Table 7: attention after 1,024 tokens, by batch", "qk", BY_BATCH, of_batches),
            ("Table 8: linear layers of the MLP, by batch", "up", BY_BATCH, of_batches),
        )
    ]
    title = "Tables 6 to 8 of the paper, for this model and device"
    return (
        f"<details id='hardware-sweeps'><summary>{title}</summary>"
        f"<p class='note'>{SWEEP_NOTE}</p>{''.join(parts)}</details>"
    )


def _sweep(chosen: Chosen, title: str, name: str, sides: str, works: dict[int, tuple[int, int]]) -> str:
    """Rows by batch or length, columns by candidates: FLOP a byte, and TFLOP/s under the roof."""
    rows = []
    for first, (batch, context) in works.items():
        row = {sides: f"{first:,}"}
        for tokens in CANDIDATES:
            work = Work(batch, tokens, context)
            intensity = next(one for one in operators(chosen.shape, work) if one.name == name).intensity
            row[str(tokens)] = f"{intensity:.2f} · {chosen.device.attainable(intensity) / TERA:.1f}"
        rows.append(row)
    return f"<h3>{title}</h3>{grid('', rows)}"


def table_of(chosen: Chosen, work: Work) -> str:
    rows = [
        {
            "product": each.product.name,
            "calls": str(each.product.calls),
            "FLOP": flops_words(each.product.flops),
            "bytes": bytes_words(each.product.moved),
            "FLOP a byte": f"{each.product.intensity:.2f}",
            "time of a call": seconds_words(each.seconds),
            "limit": "memory" if each.memory_bound else "arithmetic",
        }
        for each in timed(operators(chosen.shape, work), chosen.device)
    ]
    return grid("", rows)
