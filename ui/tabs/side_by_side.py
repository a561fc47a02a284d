"""Side by side, in Compare: two ways to continue a prompt, timed in turn, then replayed on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.components.controls import Controls, build_controls
from ui.components.events import QUIET, page_under_way, tell_script, tell_view
from ui.components.lane_controls import PREFIX, build_lane_controls, read_lane
from ui.components.views import RaceView, TextLine
from ui.records.examples import recorded_race
from ui.records.figures import Figures, PageFigures, source_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.messages import encoded, status_message
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, sentences
from ui.runs.compare import MOST_REPETITIONS, CompareRequest
from ui.runs.session import Session
from ui.serving.runner import problem_of
from ui.tabs.run_bar import SIDE_WIDTH, connect_run, follow, or_skip, run_bar, shown

VIEW = "race-view"
SHOWN_PROMPT = f"() => document.querySelector('#{VIEW} [data-prompt], #{VIEW}[data-prompt]').dataset.prompt"
EXPLANATION = """
<p class="note">Two lanes continue the same prompt: the first with the settings, the second with what is set
for it, initially plain decoding. They are timed in turn, never at once, and then replayed on one clock. If
neither lane is plain decoding, a third lane times that, for speedup and overhead.</p>
"""


def build(
    session: Session, selection: gr.State, figures: gr.State, watched: gr.Textbox
) -> tuple[Controls, gr.Dropdown]:
    """Lay the tab out and connect it; returns its controls, and the second lane's menu of methods.

    `selection` holds a `Selection`, `figures` the `PageFigures`; the prompt follows that of Watch, `watched`.
    """
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            bar = run_bar(session, "race", "Compare", watched.value)
            repetitions = gr.Slider(
                1, MOST_REPETITIONS, value=3, step=2, label="Runs of each", elem_id="race-repetitions",
                info="the median one is replayed; more runs take longer and say more",
            )  # fmt: skip
            with gr.Accordion("Settings of the first lane", open=False, elem_id="race-settings"):
                controls = build_controls(selection, session.models.settings_brought(selection.value))
            with gr.Accordion("Second lane", open=False, elem_id="race-second"):
                lane = build_lane_controls(selection)
        bar.connect_examples(controls.named["penalty"], controls.named["penalty_window"])
        with gr.Column(elem_classes="stage"):
            race = recorded_race(session.assets)
            view = RaceView(encoded(race) if race else None, elem_id=VIEW)
            headline = TextLine(
                headline_words(session.figures.begin()), elem_id="race-headline", elem_classes="status"
            )
            gr.HTML(EXPLANATION, apply_default_css=False)

    def work(flag: StopFlag, text: str, runs: int, *values: Any) -> Iterator[tuple[Any, ...]]:
        first, second = values[: len(controls.inputs())], values[len(controls.inputs()) :]
        try:
            request = CompareRequest(text, controls.settings(first), int(runs), read_lane(lane, second))
        except MedusaError as error:  # a field of the second lane holds no number
            refused = problem_of(error)
            yield (*shown(refused), _message(refused))
            return
        for update in session.run(request, flag):
            yield (*shown(update), _message(update))

    figures.change(headline_words, figures, headline, **QUIET)
    view.take(None, None, bar.prompt, js=SHOWN_PROMPT)
    settings = {
        "prompt": bar.prompt,
        **controls.named,
        **{f"{PREFIX}{name}": part for name, part in lane.items()},
    }
    loaded = page_under_way().load  # the controls' first values count as well
    tell_view(VIEW, "settings", [loaded, *(part.change for part in settings.values())], settings)
    # A box in a tab that is not open yet does not report its new value.
    followed, names = follow(watched, bar.prompt), list(settings)
    followed.then(None, list(settings.values()), None, js=tell_script(VIEW, "settings", names))
    inputs = [bar.prompt, repetitions, *controls.inputs(), *lane.values()]
    connect_run(session, bar, work, inputs, [view], selection)
    return controls, lane["method"]


def headline_words(page: PageFigures) -> str:
    """Medusa's speedup by the figures that all tabs show, to compare one prompt's race with."""
    return next(filter(None, map(_headline, page.known)), "")


def _headline(figures: Figures) -> str:
    """The same of one record; empty where it lacks one of the two methods."""
    rows = {row.series: row for row in of_all_kinds(figures.record.rows)}
    plain, own = rows.get(PLAIN_METHOD), rows.get(MEDUSA)
    if plain is None or own is None or own.speedup is None:
        return ""
    said = Words(
        "By the figures of Methods and Speed, whole runs of Medusa, with reading the prompt, are {0} times "
        "as fast as those of plain decoding: with a tree of {1} nodes it keeps {2} tokens a step, and its "
        "step takes {3} ms where a plain one takes {4}. A race is about one prompt only.",
        f"{own.speedup.median:.2f}", own.tree_nodes, f"{own.tokens_per_step.mean:.2f}", f"{own.step_ms:.2f}",
        f"{plain.step_ms:.2f}",
    )  # fmt: skip
    return sentences(said, source_words(figures))


def _message(update: Update) -> Any:
    """The replay's message; a problem stands above the previous comparison."""
    if update.problem:
        return status_message(update.status or "", busy=False)
    return or_skip(update.message)
