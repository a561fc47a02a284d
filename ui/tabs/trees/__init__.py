"""The Trees tab: how good the guesses are, the best tree for a size, and the best size for a machine."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.events import AT_ONCE, DRAWS, QUIET, SAVE, THEME, TO_TOP, turned_to
from ui.components.views import EDITED_TREE, TextLine
from ui.figures import tree_charts
from ui.records.messages import encoded
from ui.records.settings import BY_BUDGET, MOST_NODES, Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.tabs.run_bar import SIDE_WIDTH, RunBar, connect_run, or_skip, run_buttons, shown
from ui.tabs.trees import head_stats, shown_tree
from ui.tabs.trees.head_stats import HeadStats
from ui.tabs.trees.panel import INTRO, START_NODES, TreesPanel, build_files, build_stage, source_line
from ui.tabs.trees.timing import measure

# gradio passes on what is being typed, even beyond the ends of a slider.
NODES_AND_THEME = (
    f"(stats, nodes, dark) => ({THEME})(stats, Math.min({MOST_NODES}, Math.max(2, nodes)), dark)"
)
EDITED_AND_THEME = f"(...values) => ({THEME})(...({EDITED_TREE})(...values))"


def build(session: Session, selection: gr.State, places: list[gr.Tabs], opened: list[Any]) -> None:
    """Lay the tab out and connect it. `selection` holds a `Selection`. Using a tree opens that tab."""
    first = head_stats.shipped_stats(session, Selection())
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            with gr.Group():
                again = gr.Checkbox(
                    False, label="Count the accuracies again too", elem_id="trees-again",
                    info="on a few short texts; the shipped ones rest on many more",
                )  # fmt: skip
            bar = run_buttons("trees", "Measure on this machine")
            use = [
                gr.Button("Use in Watch", elem_id="trees-use-decode"),
                gr.Button("Use in Compare", elem_id="trees-use-race"),
            ]
            files = build_files()
        with gr.Column(elem_classes="stage"):
            gr.HTML(INTRO, apply_default_css=False)
            panel = build_stage(first)
    _connect_drawing(panel, opened)
    _connect_editing(session, panel, bar.status, selection)
    run = _connect_measuring(session, panel, bar, again, selection)
    _connect_files(panel, files, bar.status)
    _connect_use(panel, use, selection, places)
    for event in (selection.change, run.then):  # the visitor may choose another model during a run
        event(partial(_follow, session), [selection, panel.stats], panel.stats, **QUIET)


def draw(stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
    start: Any = gr.skip()  # the menu of trees to start from has no entry for a tree from a file
    if stats.shown is None or stats.kind == head_stats.LOADED:
        start = BY_BUDGET if stats.shown is None else None
    return (
        *draw_size(stats, nodes, dark), tree_charts.accuracy_heatmap(stats.accuracies, dark),
        source_line(stats), gr.Button(interactive=head_stats.best_size(stats) is not None), start,
    )  # fmt: skip


def draw_size(stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
    """The tree, the words about it, and the charts that mark its size."""
    return encoded(shown_tree.editor_content(stats, nodes)), *draw_beside(stats, nodes, dark)


def draw_beside(stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
    """The words about the tree, and the charts that mark its size."""
    size = len(head_stats.tree_of(stats, nodes)) + 1
    timed, curves = head_stats.timed(stats), head_stats.speeds(stats)
    return (
        head_stats.sentence(stats, nodes),
        tree_charts.tokens_by_size(head_stats.growth(stats), size, timed, dark),
        tree_charts.time_by_size(timed, curves, size, dark),
        tree_charts.speed_by_size(timed, curves, size, dark),
    )


def _connect_drawing(panel: TreesPanel, opened: list[Any]) -> None:
    # The charts are drawn when the tab is opened, in the theme the browser shows then.
    gr.on([*opened, panel.stats.change], draw, panel.inputs(), panel.whole(), **DRAWS)
    panel.nodes.input(
        _regrow, panel.inputs(), [panel.stats, panel.start, *panel.sized()], **DRAWS | {"js": NODES_AND_THEME}
    )
    taken = panel.best.click(_take_best, panel.stats, [panel.stats, panel.nodes, panel.start], **AT_ONCE)
    taken.then(draw_size, panel.inputs(), panel.sized(), **DRAWS)


def _regrow(stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
    """Return to grown trees: the slider has moved."""
    stats = stats.grown()
    return stats, BY_BUDGET, *draw_size(stats, nodes, dark)


def _take_best(stats: HeadStats) -> tuple[HeadStats, int, str]:
    best = head_stats.best_size(stats)
    return stats.grown(), best.nodes if best else START_NODES, BY_BUDGET


def _connect_editing(session: Session, panel: TreesPanel, status: TextLine, selection: gr.State) -> None:
    # The editor has drawn its tree already: a tree sent back could be several clicks old.
    panel.tree.edit(
        _edited, [panel.edited, *panel.inputs()], [panel.stats, *panel.beside()],
        **DRAWS | {"js": EDITED_AND_THEME},
    )  # fmt: skip

    def begin(name: str, own: Selection, stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
        try:
            stats = shown_tree.started(session, own, stats, name)
        except MedusaError as error:
            _warn(error)
            return gr.skip(), f"Not taken: {error}", *(gr.skip() for _ in panel.sized())
        return stats, "", *draw_size(stats, nodes, dark)

    panel.start.input(
        begin, [panel.start, selection, *panel.inputs()], [panel.stats, status, *panel.sized()], **DRAWS
    )


def _edited(text: str, stats: HeadStats, nodes: int, dark: bool) -> tuple[Any, ...]:
    """What follows an edit in the browser."""
    try:
        stats = shown_tree.edited(stats, text)
    except MedusaError as error:
        _warn(error)
        return tuple(gr.skip() for _ in range(5))
    return stats, *draw_beside(stats, nodes, dark)


def _connect_measuring(
    session: Session, panel: TreesPanel, bar: RunBar, again: gr.Checkbox, selection: gr.State
) -> gr.events.Dependency:
    def work(flag: StopFlag, count: bool, stats: HeadStats, own: Selection) -> Iterator[tuple[Any, ...]]:
        for measured in measure(session, stats, own, count, flag):
            yield *shown(measured), or_skip(measured.stats)

    # A new record triggers the drawing: the charts are not outputs of the stream.
    return connect_run(session, bar, work, [again, panel.stats, selection], [panel.stats], selection)


def _connect_files(panel: TreesPanel, files: dict[str, Any], status: TextLine) -> None:
    made = [files["name"], files["text"]]

    def tree_file(text: str, stats: HeadStats, nodes: int) -> tuple[str, str]:
        try:
            return "tree.json", head_stats.tree_text(stats, shown_tree.taken(stats, nodes, text))
        except MedusaError as error:
            _warn(error)
            return "", ""

    saving = files["tree"].click(
        tree_file, [panel.edited, panel.stats, panel.nodes], made, js=EDITED_TREE, **AT_ONCE
    )
    saving.then(None, made, None, js=SAVE)
    numbers = files["numbers"].click(
        lambda stats: ("accuracies.json", head_stats.measurements_text(stats)), panel.stats, made, **AT_ONCE
    )
    numbers.then(None, made, None, js=SAVE)
    # Queued, like every event that sets a state whose change draws: gradio fires no change for unqueued ones.
    files["load"].upload(_load, [files["load"], panel.stats], [panel.stats, status], **QUIET)


def _load(path: str, stats: HeadStats) -> tuple[Any, str]:
    """Load the visitor's file; a faulty one is reported and changes nothing."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(head_stats.MOST_BYTES + 1).decode("utf-8-sig", errors="replace")
        new = head_stats.read_stats(text, stats, "from your file")
    except MedusaError as error:
        _warn(error)
        return gr.skip(), f"Not loaded: {error}"
    return new, "Loaded. A move of the slider grows a tree again." if new.shown else "Loaded."


def _connect_use(
    panel: TreesPanel, buttons: list[gr.Button], selection: gr.State, places: list[gr.Tabs]
) -> None:
    def use(place: str, text: str, stats: HeadStats, nodes: int, own: Selection) -> tuple[Any, ...]:
        try:
            return own.with_tree(shown_tree.taken(stats, nodes, text)), *turned_to(place)
        except MedusaError as error:
            _warn(error)
            return gr.skip(), gr.skip(), gr.skip()

    for button, place in zip(buttons, ("watch", "compare"), strict=True):
        used = button.click(
            partial(use, place), [panel.edited, panel.stats, panel.nodes, selection],
            [selection, *places], js=EDITED_TREE, **QUIET,
        )  # fmt: skip
        used.then(None, None, None, js=TO_TOP, **QUIET)


def _follow(session: Session, selection: Selection, stats: HeadStats) -> Any:
    """Other heads have other accuracies; a new tree for the same heads changes nothing here."""
    if stats.belongs_to(selection):
        return gr.skip()
    try:
        return head_stats.stats_of(session, selection)
    except MedusaError:
        return gr.skip()


def _warn(error: MedusaError) -> None:
    gr.Warning(html.escape(str(error)), title="")
