"""The parts of the Trees tab: slider, editor, words, charts and files, before anything is connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.components.views import TextLine, TreeEditor
from ui.records.figures import source_words
from ui.records.messages import encoded
from ui.records.settings import BY_BUDGET, MOST_NODES
from ui.records.words import Words, sentences
from ui.tabs.trees import head_stats, shown_tree
from ui.tabs.trees.head_stats import HeadStats

START_NODES = 16
INTRO = """
<p class="note">More nodes keep more tokens a step, but make the step slower: the best size depends on the
machine, so measure yours. All sizes here count the root. Click guesses into the tree or out of it to see
what each is worth, then run with it.</p>
"""
CAUTION = """
<p class="note">The expected figures multiply the accuracies along each path, as if the heads were right
independently of each other. They are not quite: where one head is right, the next often is too. The
diamonds are counted and timed in real runs on a few texts, which can be easier or harder than those the
accuracies were counted on.</p>
"""


@dataclass(frozen=True)
class TreesPanel:
    """The parts of the tab that events read and write."""

    stats: gr.State
    nodes: gr.Slider
    start: gr.Dropdown
    dark: gr.Checkbox
    edited: gr.Textbox  # hidden: the editor's tree, for the events that take it
    tree: TreeEditor
    words: TextLine
    tokens: gr.Plot
    time: gr.Plot
    speed: gr.Plot
    heatmap: gr.Plot
    source: TextLine
    best: gr.Button

    def inputs(self) -> list[Any]:
        """The inputs of a drawing."""
        return [self.stats, self.nodes, self.dark]

    def sized(self) -> list[Any]:
        """What `draw_size` gives values for: all that depends on the size of the tree."""
        return [self.tree, *self.beside()]

    def beside(self) -> list[Any]:
        """What `draw_beside` gives values for: the same without the tree."""
        return [self.words, self.tokens, self.time, self.speed]

    def whole(self) -> list[Any]:
        """What `draw` gives values for."""
        return [*self.sized(), self.heatmap, self.source, self.best, self.start]


def build_stage(stats: HeadStats) -> TreesPanel:
    """Slider, tree, words and charts; the words and the tree are shown before any event."""
    with gr.Row():
        nodes = gr.Slider(
            2, MOST_NODES, value=START_NODES, step=1, label="Node budget", elem_id="trees-nodes",
            info="nodes of the tree, the root included", min_width=240, scale=4,
        )  # fmt: skip
        start = gr.Dropdown(
            shown_tree.starts(), value=BY_BUDGET, label="Start from", elem_id="trees-start",
            info="the tree to edit", filterable=False, min_width=240, scale=3,
        )  # fmt: skip
        best = gr.Button(
            "Best size for this machine", interactive=False, elem_id="trees-best", min_width=200, scale=1
        )
    words = TextLine(head_stats.sentence(stats, START_NODES), elem_id="trees-words", elem_classes="status")
    value = encoded(shown_tree.editor_content(stats, START_NODES))
    tree = TreeEditor(value, elem_id="trees-drawing")
    gr.HTML(CAUTION, apply_default_css=False)
    with gr.Row():
        heatmap = gr.Plot(
            label="How often each guess of each head is right", min_width=320, elem_id="trees-heatmap"
        )
        tokens = gr.Plot(label="Tokens per step by tree size", min_width=320, elem_id="trees-tokens")
    with gr.Row():
        time = gr.Plot(label="Time of a step by tree size", min_width=320, elem_id="trees-time")
        speed = gr.Plot(
            label="Tokens per second by tree size: the two divided", min_width=320, elem_id="trees-speed"
        )
    source = TextLine(source_line(stats), elem_id="trees-source", elem_classes="badge")
    return TreesPanel(
        stats=gr.State(stats), nodes=nodes, start=start, dark=gr.Checkbox(visible=False),
        edited=gr.Textbox(visible=False), tree=tree, words=words,
        tokens=tokens, time=time, speed=speed, heatmap=heatmap, source=source, best=best,
    )  # fmt: skip


def build_files() -> dict[str, Any]:
    """Buttons and hidden texts for what is saved and loaded."""
    with gr.Accordion("Save and load", open=False, elem_id="trees-files"):
        with gr.Row(elem_classes="run-row"):
            save_tree = gr.Button("Save tree", elem_id="trees-save", min_width=80)
            save_numbers = gr.Button("Save numbers", elem_id="trees-save-numbers", min_width=80)
        load = gr.UploadButton(
            "Load a tree or numbers (JSON)", file_types=[".json"], type="filepath", elem_id="trees-load"
        )
        name, text = gr.Textbox(visible=False), gr.Textbox(visible=False)
    return {"tree": save_tree, "numbers": save_numbers, "load": load, "name": name, "text": text}


def source_line(stats: HeadStats) -> str:
    """Where the accuracies come from, and the machine whose steps were timed."""
    source = Words("Accuracies: {0}.", stats.source)
    if not (stats.latency and stats.machine):
        return source
    times = source_words(stats.figures) if stats.figures else Words("Step times: {0}.", stats.machine)
    return sentences(source, times)
