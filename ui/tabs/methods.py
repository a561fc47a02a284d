"""The Methods tab: every method on one prompt, tokens per step against time per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.experiments import store
from medusa_core.experiments.remarks import reason_against_paper
from medusa_core.experiments.spec_bench import of_all_kinds
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.shapes import find_shape
from ui.components.controls import LABELS, slider
from ui.components.events import DRAWS, QUIET, page_under_way
from ui.components.figure_table import grid, html_part, wrap
from ui.components.views import TextLine
from ui.figures.method_speeds import PLAIN, MethodSpeed, speed_cells, tokens_against_time
from ui.records.figures import Figures, measured_figures, source_words
from ui.records.settings import COPIES_LABEL, MOST_TOKENS, Selection, of_choice
from ui.records.updates import StopFlag
from ui.records.words import Words, sentences
from ui.runs.compare import MOST_REPETITIONS
from ui.runs.methods import MethodsRequest, MethodsUpdate
from ui.runs.other_work import busy_words
from ui.runs.session import Session
from ui.tabs.hardware.choice import menus
from ui.tabs.methods_computed import compute, markup, words_after, words_before
from ui.tabs.run_bar import SIDE_WIDTH, connect_run, follow, run_bar, shown

ALIKE = 1.03  # speeds whose ratio is smaller are called equal
MEASURED, COMPUTED = "measured", "computed"
EXPLANATION = """
<p class="note">Every method that the loaded model can run continues the same prompt, greedily and in turn.
A point far up keeps many tokens a step, a point far right takes long for a step; what counts is the slope,
since tokens per step over time per step is tokens per second, apart from the time that reading the
prompt takes.</p>
"""


@dataclass(frozen=True, eq=False)  # by identity, since gradio hashes what a state holds
class Shown:
    """What the stage says and draws: the sentence above the picture, and the rows of the table below it.

    ``figures`` are what it was made from, ``behind`` is what is said after the conclusion.
    """

    words: str
    speeds: Sequence[MethodSpeed] = ()
    rows: Sequence[dict[str, str]] = ()
    figures: Figures | None = None
    behind: str = ""

    def chosen(self, copies: bool) -> Shown:
        """The methods that also copy from the text, or those that do not, and the words on them."""
        names = of_choice([speed.name for speed in self.speeds], copies)
        if not names:
            return self
        pairs = zip(self.speeds, self.rows, strict=True)
        speeds, rows = zip(*(pair for pair in pairs if pair[0].name in names), strict=True)
        return replace(self, words=sentences(conclusion(speeds), self.behind), speeds=speeds, rows=rows)


def build(session: Session, selection: gr.State, figures: gr.State, watched: gr.Textbox) -> None:
    """Lay the tab out and connect it. `selection` holds a `Selection`, `figures` the `PageFigures`.

    The prompt follows that of Watch, `watched`.
    """
    recorded = shown_methods(session.figures.begin().stored, session.assets)
    dark = gr.Checkbox(visible=False)
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            bar = run_bar(session, "methods", "Measure all", watched.value)
            tokens = gr.Slider(
                16, MOST_TOKENS, value=96, step=16, label=LABELS["max_new_tokens"], elem_id="methods-tokens",
                info="of each run",
            )  # fmt: skip
            rounds = gr.Slider(
                1, MOST_REPETITIONS, value=3, step=1, label="Runs of each", elem_id="methods-rounds",
                info="the median counts; more runs take longer and say more",
            )  # fmt: skip
            with gr.Accordion("Penalty", open=False, elem_id="methods-penalty"):
                penalty, window = (
                    slider(name, getattr(GenerationConfig, name)) for name in ("penalty", "penalty_window")
                )
        bar.connect_examples(penalty, window)
        follow(watched, bar.prompt)
        with gr.Column(elem_classes="stage"):
            gr.HTML(EXPLANATION, apply_default_css=False)
            with gr.Row(equal_height=True):
                times = gr.Radio(
                    [("measured", MEASURED), ("computed for a 7B on an A100, or another", COMPUTED)],
                    value=MEASURED, label="Time of a step", elem_id="methods-times", scale=3, min_width=320,
                )  # fmt: skip
                copies = gr.Checkbox(label=COPIES_LABEL, elem_id="methods-copies")
            with gr.Row(visible=False) as elsewhere:
                model, device = menus("methods")
            first = recorded.chosen(False)
            words = TextLine(first.words, elem_id="methods-words", elem_classes="status")
            plot = gr.Plot(label="Tokens per step against time per step", elem_id="methods-plot")
            with gr.Accordion("Figures of each method", open=False, elem_id="methods-figures"):
                table = html_part(_markup(first.rows), "methods-table")
    now = gr.State(recorded)

    def work(
        flag: StopFlag, text: str, count: float, runs: float, penalty: float, window: float, chosen: Selection
    ) -> Iterator[tuple[Any, ...]]:
        request = MethodsRequest(text, count, int(runs), chosen, penalty, window)
        for update in session.run(request, flag):
            found: Any = gr.skip()
            if isinstance(update, MethodsUpdate):
                measured = measured_figures(update.record, chosen, update.options)
                found = shown_methods(measured, session.assets, update.note)
            yield *shown(update), found

    asked = [bar.prompt, tokens, rounds, penalty, window, selection]
    run = connect_run(session, bar, work, asked, [now], selection)
    run.then(lambda found, page: session.figures.adopt(page, found.figures), [now, figures], figures, **QUIET)
    figures.change(lambda page: shown_methods(page.of_methods, session.assets), figures, now, **QUIET)
    inputs, outputs = [now, times, copies, model, device, dark], [words, plot, table, elsewhere]
    chosen = [times.input, copies.input, model.input, device.input]
    # The picture comes after the first paint.
    gr.on([page_under_way().load, now.change, *chosen], draw, inputs, outputs, **DRAWS)


def draw(found: Shown, times: str, copies: bool, model: str, device: str, dark: bool) -> tuple[Any, ...]:
    """Words, picture and table, by what was measured or by what is computed, and whether menus are shown."""
    menus, found = gr.Row(visible=times == COMPUTED), found.chosen(copies)
    if times == MEASURED or found.figures is None:
        return found.words, tokens_against_time(found.speeds, dark), _markup(found.rows), menus
    try:
        shape, on = find_shape(model), find_device(device)
        methods = compute(found.speeds, found.figures, shape, on)
    except MedusaError as error:
        return str(error), gr.skip(), gr.skip(), menus
    said = sentences(words_before(shape, on), conclusion(methods), words_after(methods, found.figures))
    return said, tokens_against_time(methods, dark, computed=True), markup(methods), menus


def shown_methods(figures: Figures | None, assets: Path, note: str = "") -> Shown:
    """The methods of a record, stored or measured here: over all kinds of text."""
    if figures is None:
        return Shown(
            Words("Nothing measured yet: choose an example or write a prompt, then press the button.")
        )
    of_all = [row for row in of_all_kinds(figures.record.rows) if row.phase_ms]  # generate has none
    speeds, rows = [MethodSpeed.of(row) for row in of_all], [speed_cells(row) for row in of_all]
    if figures.at:
        for row, cells in zip(of_all, rows, strict=True):
            cells["same text"] = "yes" if row.same_texts == row.prompts else "no"
    against = reason_against_paper(figures.record, assets / store.FOLDER)
    disturbed = busy_words(figures.record.machine.model_dump()) if figures.at else ""
    behind = sentences(disturbed, note, against, source_words(figures))
    return Shown(sentences(conclusion(speeds), behind), speeds, rows, figures, behind)


def conclusion(speeds: Sequence[MethodSpeed]) -> str:
    """What the picture shows: why the method that keeps most tokens is, or is not, the fastest."""
    fastest = max(speeds, key=lambda one: one.tokens_per_second)
    most = max(speeds, key=lambda one: (round(one.tokens_per_step, 2), one.tokens_per_second))
    plain = next(one for one in speeds if one.name == PLAIN)
    slower = f"{most.step_ms / plain.step_ms:.2f}"
    if fastest.tokens_per_second < ALIKE * plain.tokens_per_second:
        return Words(
            "No method pays here. Most tokens a step: {0}, with {1}, but such a step takes {2} times as long "
            "as plain decoding’s.", most.title, f"{most.tokens_per_step:.2f}", slower,
        )  # fmt: skip
    if fastest is most:
        return Words(
            "Most tokens a step: {0}, with {1}, and it is also the fastest, since such a step takes only {2} "
            "times as long as plain decoding’s.", most.title, f"{most.tokens_per_step:.2f}", slower,
        )  # fmt: skip
    if fastest.tokens_per_second < ALIKE * most.tokens_per_second:
        return Words(
            "Most tokens a step: {0}, with {1}. No other method is clearly faster, since such a step takes "
            "only {2} times as long as plain decoding’s.", most.title, f"{most.tokens_per_step:.2f}", slower,
        )  # fmt: skip
    return Words(
        "Most tokens a step: {0}, with {1}. Fastest: {2}, with {3}, since its step takes {4} ms and that "
        "of {0} {5} ms.",
        most.title, f"{most.tokens_per_step:.2f}", fastest.title, f"{fastest.tokens_per_step:.2f}",
        f"{fastest.step_ms:.2f}", f"{most.step_ms:.2f}",
    )  # fmt: skip


def _markup(rows: Sequence[dict[str, str]]) -> str:
    caption = "Overhead and speedup are over plain decoding; in brackets the slowest and the fastest run."
    return wrap(grid(caption, rows)) if rows else ""
