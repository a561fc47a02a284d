"""The Trees tab: how good the heads' guesses are, the best tree for a size, and the best size for a machine.

Knows the page's parts and the lab (`ui.tabs.trees.lab`); all is drawn from the visitor's own record of it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.events import QUIET
from ui.components.text_line import TextLine
from ui.figures import tree_charts
from ui.figures.tree_drawing import tree_svg
from ui.records.selection import Chosen
from ui.records.updates import StopFlag
from ui.session import Session
from ui.tabs.run_bar import SIDE_WIDTH, RunBar, connect_run, run_buttons, shown
from ui.tabs.trees import lab as tree_lab
from ui.tabs.trees.lab import MOST_NODES, Lab
from ui.tabs.trees.timing import measure

START_NODES = 16
INTRO = """
<p class="note">A tree is grown by always adding the guess that is most likely to be right together with
everything before it. More nodes keep more tokens a step, but make the step slower: the best size depends on
the machine, so measure yours. All sizes here count the root.</p>
"""
CAUTION = """
<p class="note">The expected figures multiply the accuracies along each path, as if the heads were right
independently of each other. They are not quite: where one head is right, the next often is too. The
diamonds are counted and timed in real runs on a few texts, which can be easier or harder than those the
accuracies were counted on.</p>
"""
# The last input of every drawing event is whether the browser shows the dark theme.
THEME = "(...values) => [...values.slice(0, -1), document.body.classList.contains('dark')]"
SAVE = """(name, text) => {
  if (!text) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}"""


@dataclass(frozen=True)
class Desk:
    """The parts of the tab that events read and write."""

    lab: gr.State
    nodes: gr.Slider
    dark: gr.Checkbox
    tree: gr.HTML
    words: TextLine
    tokens: gr.Plot
    time: gr.Plot
    speed: gr.Plot
    heatmap: gr.Plot
    source: TextLine
    best: gr.Button

    def inputs(self) -> list[Any]:
        """What a drawing is made from."""
        return [self.lab, self.nodes, self.dark]

    def sized(self) -> list[Any]:
        """What `draw_size` gives values for: all that depends on the size of the tree."""
        return [self.tree, self.words, self.tokens, self.time, self.speed]

    def whole(self) -> list[Any]:
        """What `draw` gives values for."""
        return [*self.sized(), self.heatmap, self.source, self.best]


def build(session: Session, chosen: gr.State, tabs: gr.Tabs, tab: gr.Tab) -> None:
    """Lay the tab out and connect it. `chosen` holds the visitor's `Chosen`; `tabs` are turned to show it."""
    first = tree_lab.shipped_lab(session, Chosen())
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            use = [
                gr.Button("Use in Decode", variant="primary", elem_id="trees-use-decode"),
                gr.Button("Use in Side by side", elem_id="trees-use-race"),
            ]
            bar, again = _measuring()
            files = _files()
        with gr.Column(elem_classes="stage"):
            gr.HTML(INTRO, apply_default_css=False)
            desk = _stage(first)
    _connect_drawing(desk, tab)
    _connect_measuring(session, desk, bar, again, chosen)
    _connect_files(desk, files, bar.status)
    _connect_use(desk, use, chosen, tabs)
    chosen.change(lambda new, lab: _follow(session, new, lab), [chosen, desk.lab], desk.lab, **QUIET)


def draw(lab: Lab, nodes: int, dark: bool) -> tuple[Any, ...]:
    """The whole tab."""
    return (
        *draw_size(lab, nodes, dark),
        tree_charts.accuracy_heatmap(lab.accuracies, dark),
        _source(lab),
        gr.Button(interactive=tree_lab.best_size(lab) is not None),
    )


def draw_size(lab: Lab, nodes: int, dark: bool) -> tuple[Any, ...]:
    """The tree, what is said of it, and the charts that mark its size."""
    size = len(tree_lab.tree_of(lab, nodes)) + 1
    timed, curves, best = tree_lab.timed(lab), tree_lab.speeds(lab), tree_lab.best_size(lab)
    return (
        tree_svg(tree_lab.drawn(lab, nodes)),
        tree_lab.sentence(lab, nodes),
        tree_charts.tokens_by_size(tree_lab.growth(lab), size, timed, dark),
        tree_charts.time_by_size(timed, curves, size, dark),
        tree_charts.speed_by_size(timed, curves, best, size, dark),
    )


def _measuring() -> tuple[RunBar, gr.Checkbox]:
    with gr.Group():
        again = gr.Checkbox(
            False, label="Count the accuracies again too", elem_id="trees-again",
            info="on a few short texts; the shipped ones rest on many more",
        )  # fmt: skip
    return run_buttons("trees", "Measure on this machine"), again


def _files() -> dict[str, Any]:
    with gr.Accordion("Save and load", open=False, elem_id="trees-files"):
        with gr.Row(elem_classes="run-row"):
            save_tree = gr.Button("Save tree", elem_id="trees-save", min_width=80)
            save_numbers = gr.Button("Save numbers", elem_id="trees-save-numbers", min_width=80)
        load = gr.UploadButton(
            "Load a tree or numbers (JSON)", file_types=[".json"], type="filepath", elem_id="trees-load"
        )
        name, text = gr.Textbox(visible=False), gr.Textbox(visible=False)
    return {"tree": save_tree, "numbers": save_numbers, "load": load, "name": name, "text": text}


def _stage(lab: Lab) -> Desk:
    """Slider, tree, words and charts; the tree and the words are there before any event."""
    with gr.Row(elem_classes="lab-size"):
        nodes = gr.Slider(
            2, MOST_NODES, value=START_NODES, step=1, label="Node budget", elem_id="trees-nodes",
            info="nodes of the tree, the root included", min_width=240, scale=4,
        )  # fmt: skip
        best = gr.Button(
            "Best size for this machine", interactive=False, elem_id="trees-best", min_width=240, scale=1
        )
    words = TextLine(tree_lab.sentence(lab, START_NODES), elem_id="trees-words", elem_classes="status")
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            tree = gr.HTML(
                tree_svg(tree_lab.drawn(lab, START_NODES)), apply_default_css=False, elem_id="trees-drawing"
            )
        with gr.Column(scale=2, min_width=320):
            heatmap = gr.Plot(label="How often each guess of each head is right", elem_id="trees-heatmap")
    gr.HTML(CAUTION, apply_default_css=False)
    with gr.Row():
        tokens = gr.Plot(label="Tokens per step by tree size", min_width=320, elem_id="trees-tokens")
        time = gr.Plot(label="Time of a step by tree size", min_width=320, elem_id="trees-time")
    speed = gr.Plot(label="Tokens per second by tree size: the two divided", elem_id="trees-speed")
    source = TextLine(_source(lab), elem_id="trees-source", elem_classes="badge")
    return Desk(
        lab=gr.State(lab), nodes=nodes, dark=gr.Checkbox(visible=False), tree=tree, words=words,
        tokens=tokens, time=time, speed=speed, heatmap=heatmap, source=source, best=best,
    )  # fmt: skip


def _connect_drawing(desk: Desk, tab: gr.Tab) -> None:
    quick = {"js": THEME, "queue": False, **QUIET}
    # The charts are drawn when the tab is opened, in the theme the browser shows then.
    gr.on([tab.select, desk.lab.change], draw, desk.inputs(), desk.whole(), **quick)
    desk.nodes.input(_regrow, desk.inputs(), [desk.lab, *desk.sized()], trigger_mode="always_last", **quick)
    taken = desk.best.click(_take_best, desk.lab, [desk.lab, desk.nodes], queue=False, **QUIET)
    taken.then(draw_size, desk.inputs(), desk.sized(), **quick)


def _regrow(lab: Lab, nodes: int, dark: bool) -> tuple[Any, ...]:
    """A move of the slider puts a loaded tree away."""
    lab = replace(lab, loaded=())
    return lab, *draw_size(lab, nodes, dark)


def _take_best(lab: Lab) -> tuple[Lab, int]:
    best = tree_lab.best_size(lab)
    return replace(lab, loaded=()), best.nodes if best else START_NODES


def _connect_measuring(
    session: Session, desk: Desk, bar: RunBar, again: gr.Checkbox, chosen: gr.State
) -> None:
    def work(flag: StopFlag, count: bool, lab: Lab, own: Chosen) -> Iterator[tuple[Any, ...]]:
        for measured in measure(session, lab, own, count, flag):
            yield *shown(measured.update), measured.lab or gr.skip()

    # The new record's change draws it; the charts are no outputs of the stream.
    run = connect_run(session, bar, work, [again, desk.lab, chosen], [desk.lab], chosen)
    # The visitor may have turned to another model meanwhile.
    run.then(lambda new, lab: _follow(session, new, lab), [chosen, desk.lab], desk.lab, **QUIET)


def _connect_files(desk: Desk, files: dict[str, Any], status: TextLine) -> None:
    makers = {
        "tree": lambda lab, nodes: ("tree.json", tree_lab.tree_text(lab, nodes)),
        "numbers": lambda lab, nodes: ("accuracies.json", tree_lab.measurements_text(lab)),
    }
    for name, make in makers.items():
        made = [files["name"], files["text"]]
        saving = files[name].click(make, [desk.lab, desk.nodes], made, queue=False, **QUIET)
        saving.then(None, made, None, js=SAVE)
    # Queued, as everything that writes a state whose change draws: gradio fires no change for the others.
    files["load"].upload(_load, [files["load"], desk.lab], [desk.lab, status], **QUIET)


def _load(path: str, lab: Lab) -> tuple[Any, str]:
    """The visitor's file; what is wrong with it is said and nothing changes."""
    file = Path(path)
    try:
        if file.stat().st_size > tree_lab.MOST_BYTES:
            raise MedusaError(f"the file is larger than {tree_lab.MOST_BYTES // 1000} kB: load a smaller one")
        new = tree_lab.read_lab(file.read_bytes().decode("utf-8", errors="replace"), lab, "from your file")
    except MedusaError as error:
        gr.Warning(html.escape(str(error)), title="")
        return gr.skip(), f"Not loaded: {error}"
    return new, "Loaded. A move of the slider grows a tree again." if new.loaded else "Loaded."


def _connect_use(desk: Desk, buttons: list[gr.Button], chosen: gr.State, tabs: gr.Tabs) -> None:
    for button, target in zip(buttons, ("decode", "side-by-side"), strict=True):
        button.click(
            lambda lab, nodes, own, name=target: (
                own.with_tree(tree_lab.tree_of(lab, nodes)),
                gr.Tabs(selected=name),
            ),
            [desk.lab, desk.nodes, chosen],
            [chosen, tabs],
            **QUIET,
        )


def _follow(session: Session, chosen: Chosen, lab: Lab) -> Any:
    """Other heads have other accuracies; a new tree for the same heads changes nothing here."""
    if lab.belongs_to(chosen):
        return gr.skip()
    try:
        return tree_lab.lab_of(session, chosen)
    except MedusaError:
        return gr.skip()


def _source(lab: Lab) -> str:
    machine = f" Step times: {lab.machine}." if lab.latency and lab.machine else ""
    return f"Accuracies: {lab.source}.{machine}"
