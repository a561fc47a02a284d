"""The third part of the Hardware tab: the key-value cache, who shares it, and what fits where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from medusa_core.hardware.devices import Device, known_devices
from medusa_core.hardware.operators import (
    PRECISIONS,
    kv_bytes_per_token,
    kv_cache_bytes,
    longest_text,
    memory_over_arithmetic,
)
from medusa_core.hardware.shapes import MHA, ModelShape, divisors
from medusa_core.words import bytes_words
from ui.components.events import AT_ONCE
from ui.components.views import TextLine
from ui.figures.hardware import fits_chart, ratio_chart, sharing_drawing
from ui.records.settings import Selection
from ui.records.words import Words, sentences
from ui.runs.session import Session
from ui.tabs.hardware.choice import MOST_BATCH, Choice, Chosen, connect_drawing, shape_named

LENGTHS = (16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SHARING_NOTE = """<p class="note">What to see: with MHA each query head reads its own keys and values,
with GQA a group shares them, with MQA all do; the cache shrinks by the size of a group.</p>"""
FITS_NOTE = """<p class="note">What to see: where the bar ends left of a device’s mark, weights and cache
fit; with long texts and large batches the cache alone fills it. A 7B model in 16 bits keeps 512 KiB a
token.</p>"""
RATIO_NOTE = """<p class="note">What to see: a single text moves about one number for each multiplication.
A batch shares the weights, so the ratio falls, but each text brings its own cache: with MHA it stays
high after long texts, with shared heads it falls.</p>"""


def build(session: Session, choice: Choice, triggers: list[Any]) -> None:
    """Lay the part out and connect it; a shape chosen above fills the sliders."""
    sizes, use = _controls()
    words = TextLine(elem_id="memory-words", elem_classes="status")
    drawing = gr.Plot(label="Which query heads share keys and values", elem_id="memory-sharing")
    gr.HTML(SHARING_NOTE, apply_default_css=False)
    fits = gr.Plot(label="What fits which device", elem_id="memory-fits")
    gr.HTML(FITS_NOTE, apply_default_css=False)
    with gr.Row():
        by_length = gr.Plot(
            label="Memory over arithmetic by length", min_width=320, elem_id="memory-by-length"
        )
        by_batch = gr.Plot(label="Memory over arithmetic by batch", min_width=320, elem_id="memory-by-batch")
    gr.HTML(RATIO_NOTE, apply_default_css=False)
    controls = [*sizes, *use]
    connect_drawing(
        session, choice, draw, [*triggers, *(control.change for control in controls)], controls, words,
        [drawing, fits, by_length, by_batch],
    )  # fmt: skip

    def fill(name: str, selection: Selection) -> tuple[Any, ...]:
        try:
            shape = shape_named(session, selection, name)
        except MedusaError:  # the drawing reports it
            return tuple(gr.skip() for _ in sizes)
        return shape.layers, shape.heads, shape.kv_heads, shape.head_size

    choice.model.input(fill, [choice.model, choice.selection], sizes, **AT_ONCE)


def _controls() -> tuple[list[Any], list[Any]]:
    with gr.Row():
        sizes = [
            gr.Slider(1, 128, value=32, step=1, label="Layers", elem_id="memory-layers", min_width=150),
            gr.Slider(1, 128, value=32, step=1, label="Query heads", elem_id="memory-heads", min_width=150),
            gr.Slider(1, 128, value=32, step=1, label="Key-value heads", elem_id="memory-kv-heads",
                      info="as many as query heads: MHA, 1: MQA, between: GQA", min_width=150),
            gr.Slider(8, 256, value=128, step=8, label="Head size", elem_id="memory-head-size",
                      min_width=150),
        ]  # fmt: skip
    with gr.Row():
        use = [
            gr.Dropdown(list(PRECISIONS), value="bfloat16", label="Precision of the cache", filterable=False,
                        elem_id="memory-precision", min_width=150),
            gr.Slider(128, 262_144, value=4096, step=128, label="Length of the text", info="tokens",
                      elem_id="memory-length", min_width=150),
            gr.Slider(1, MOST_BATCH, value=1, step=1, label="Batch", info="texts at once",
                      elem_id="memory-batch", min_width=150),
        ]  # fmt: skip
    return sizes, use


def draw(
    chosen: Chosen,
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    precision: str,
    length: int,
    batch: int,
) -> tuple[Any, ...]:
    """A sentence, the drawing, what fits, and two ratios. Raises MedusaError for sizes that fit no model."""
    shape = resized(chosen.shape, layers, heads, kv_heads, head_size)
    number_bytes = PRECISIONS[precision]
    weights, cache = 2.0 * shape.parameters, kv_cache_bytes(shape, batch, length, number_bytes)
    of_token = kv_bytes_per_token(layers, kv_heads, head_size, number_bytes)
    most = longest_text(shape, chosen.device, batch, 2, number_bytes)
    words = sentences(
        Words("{0}: {1} a token, {2} in all.", shape.kind, bytes_words(of_token), bytes_words(cache)),
        Words("{0} holds texts of {1} tokens besides the weights.", chosen.device.title, f"{most:,}")
        if most > 0
        else Words("The weights do not fit {0}.", chosen.device.title)
        if chosen.device.memory
        else Words("The memory of {0} is not known.", chosen.device.title),
        cached_words(chosen.device, of_token * batch),
    )
    kinds = {kind: replace(shape, kv_heads=count) for kind, count in _kinds(heads, kv_heads).items()}
    ratios = [
        {kind: [memory_over_arithmetic(each, *place) for place in places] for kind, each in kinds.items()}
        for places in ([(batch, size) for size in LENGTHS], [(size, length) for size in BATCHES])
    ]
    return (
        words,
        sharing_drawing(heads, kv_heads, chosen.dark),
        fits_chart(list(known_devices().values()), weights, cache, chosen.dark),
        ratio_chart(LENGTHS, ratios[0], "tokens of the text", chosen.dark),
        ratio_chart(BATCHES, ratios[1], "batch", chosen.dark),
    )


def cached_words(device: Device, row: float) -> str:
    """How much of a text the chip's own cache holds; empty where its size is not known."""
    if not device.cache:
        return ""
    return Words(
        "The cache on its chip, {0} of SRAM, holds keys and values of {1} tokens; the rest is read from its "
        "memory.",
        bytes_words(device.cache),
        f"{int(device.cache // row):,}",
    )


def resized(shape: ModelShape, layers: int, heads: int, kv_heads: int, head_size: int) -> ModelShape:
    """The shape with other sizes; its MLP keeps its proportion to the width. Raises MedusaError."""
    hidden = heads * head_size
    intermediate = max(1, round(shape.intermediate * hidden / shape.hidden))
    return replace(
        shape, hidden=hidden, intermediate=intermediate, heads=heads, kv_heads=kv_heads, head_size=head_size,
        layers=layers,
    )  # fmt: skip


def _kinds(heads: int, kv_heads: int) -> dict[str, int]:
    """Numbers of key-value heads to compare: all, one, and the chosen number or about eight groups."""
    between = kv_heads if 1 < kv_heads < heads else max(each for each in divisors(heads) if each <= 8)
    return {MHA: heads, f"GQA, {between} groups": between, "MQA": 1}
