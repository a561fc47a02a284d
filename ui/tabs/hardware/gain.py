"""The second part of the Hardware tab: what Medusa gains by the formulas, and where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from medusa_core.hardware.operators import ADDED, OVERLAPPED
from medusa_core.hardware.simulation import (
    BATCHES,
    CANDIDATES,
    CONTEXTS,
    Acceleration,
    Gain,
    best,
    gains,
    logarithmic,
)
from medusa_core.trees.search import expected_lengths, search_tree
from ui.components.views import TextLine
from ui.figures.simulation import Line, lines_chart, map_chart
from ui.records.words import Words
from ui.runs.session import Session
from ui.tabs.hardware.choice import Choice, Chosen, connect_drawing, work_sliders
from ui.tabs.trees.head_stats import stats_of

PAPER, HEADS = "paper", "heads"
MAPPED = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIRST_NOTE = """<p class="note">What to see: tokens per step grow like a logarithm, the time of a step
hardly at first and then in proportion, so there is a best number of candidates. The paper puts it near 64
for Llama-7B on an A100, between the two ways to count the time. Its curve gives 2 and 4 candidates no gain;
with the accuracies of the heads they have one. Trees measures what is best for the loaded model on this
machine.</p>"""
BATCH_NOTE = """<p class="note">What to see: each doubling of the batch lowers the gain, since the
linear layers then wait for arithmetic; for Llama-7B on an A100, with full overlap, it is gone above
batch 32, as in the paper.</p>"""
LENGTH_NOTE = """<p class="note">What to see: for Llama-7B on an A100, where reading and arithmetic overlap,
a longer text lowers the best gain but leaves the best number of candidates as it is, as in the paper.</p>"""
MAP_NOTE = """<p class="note">What to see: Medusa pays in the blue corner of small batches; in the orange
one the same tree makes decoding slower.</p>"""


def build(session: Session, choice: Choice, triggers: list[Any]) -> None:
    """Lay the part out and connect it."""
    with gr.Row():
        sliders = work_sliders("gain")
    with gr.Row():
        cost = gr.Radio(
            [("overlap fully (roofline)", OVERLAPPED), ("one after the other", ADDED)], value=OVERLAPPED,
            label="Reading and arithmetic", elem_id="gain-cost", min_width=240,
        )  # fmt: skip
        source = gr.Radio(
            [("0.477·log₂(candidates): the paper’s curve, base 2 is our reading", PAPER),
             ("accuracies of the heads", HEADS)],
            value=PAPER, label="Tokens per step", elem_id="gain-source", min_width=240,
        )  # fmt: skip
    words = TextLine(elem_id="gain-words", elem_classes="status")
    plots: list[Any] = []
    for labels, notes in (
        (("Gain by candidates (figure 21)", "Where it pays: speedup by batch and candidates"),
         (FIRST_NOTE, MAP_NOTE)),
        (("Speedup by batch (figure 22)", "Speedup by length, batch 4 (figure 23)"),
         (BATCH_NOTE, LENGTH_NOTE)),
    ):  # fmt: skip
        with gr.Row():
            for label, note in zip(labels, notes, strict=True):
                with gr.Column(min_width=320):
                    plots.append(gr.Plot(label=label, elem_id=f"gain-{len(plots)}"))
                    gr.HTML(note, apply_default_css=False)
    controls: list[Any] = [*sliders, cost, source]

    def draw_here(chosen: Chosen, batch: int, context: int, cost: str, source: str) -> tuple[Any, ...]:
        kept: Acceleration = logarithmic
        if source == HEADS:
            kept = by_accuracies(stats_of(session, chosen.selection).accuracies)
        return draw(chosen, batch, context, cost, kept)

    connect_drawing(
        session, choice, draw_here, [*triggers, *(control.input for control in controls)], controls, words,
        plots,
    )  # fmt: skip


def draw(chosen: Chosen, batch: int, context: int, cost: str, acceleration: Acceleration) -> tuple[Any, ...]:
    shape, device, dark = chosen.shape, chosen.device, chosen.dark

    def found(batch: int, context: int) -> list[Gain]:
        return gains(shape, device, batch, context, acceleration, cost)

    own = found(batch, context)
    first = [
        Line("tokens per step", CANDIDATES, [each.acceleration for each in own]),
        Line("time of a step, plain is 1", CANDIDATES, [each.latency for each in own]),
        Line("speedup", CANDIDATES, [each.speedup for each in own]),
    ]
    by_batch = {size: found(size, context) for size in BATCHES}
    batches = [_line(f"batch {size}", curve) for size, curve in by_batch.items()]
    lengths = [_line(f"{length} tokens", found(4, length)) for length in CONTEXTS]
    mapped = [[each.speedup for each in curve if each.candidates in MAPPED] for curve in by_batch.values()]
    return (
        best_words(
            *(best(gains(shape, device, batch, context, acceleration, way)) for way in (OVERLAPPED, ADDED))
        ),
        lines_chart(first, "times plain", dark, paper=True),
        map_chart(BATCHES, MAPPED, mapped, dark),
        lines_chart(batches, "speedup", dark),
        lines_chart(lengths, "speedup", dark),
    )


def best_words(overlapped: Gain, added: Gain) -> Words:
    """The best number of candidates by the two ways to count time; devices lie between them."""
    if max(overlapped.speedup, added.speedup) <= 1:
        return Words("No number of candidates is faster than plain decoding here.")
    return Words(
        "Computed, not measured. Best where reading and arithmetic overlap fully: {0} candidates, {1} times "
        "plain decoding; where one follows the other: {2} candidates, {3} times. A device lies between the "
        "two.",
        overlapped.candidates, f"{overlapped.speedup:.2f}", added.candidates, f"{added.speedup:.2f}",
    )  # fmt: skip


def _line(name: str, curve: list[Gain]) -> Line:
    return Line(name, CANDIDATES, [each.speedup for each in curve])


def by_accuracies(accuracies: Sequence[Sequence[float]]) -> Acceleration:
    """Expected tokens per step of the best tree of each size, by how often the heads' guesses are right.

    Sizes for which the heads have too few guesses gain nothing more. Raises MedusaError.
    """
    lengths = expected_lengths(accuracies, search_tree(accuracies, max(CANDIDATES) - 1).choices)
    return lambda candidates: lengths[min(candidates, len(lengths)) - 1]
