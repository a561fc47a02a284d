"""Watch: a prompt or a chat, the settings, the linked view of every step, and charts of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import gradio as gr

from medusa_core.config import GenerationConfig
from medusa_core.drafters import method
from medusa_core.drafters.medusa import DEFAULT
from ui.components.controls import Controls, build_controls, has_tree
from ui.components.events import AT_ONCE, DARK_THEME, QUIET, page_under_way, tell_view
from ui.components.views import DecodeView
from ui.records.examples import Recording
from ui.records.messages import message_rest
from ui.records.settings import RunSettings, Selection
from ui.records.updates import StopFlag
from ui.records.words import Words, sentences
from ui.runs.decode import DecodeRequest
from ui.runs.session import Session
from ui.serving.kept import RunSlot
from ui.tabs.chat import CHAT, ChatPanel
from ui.tabs.run_bar import SIDE_WIDTH, connect_run, drawn_run, kept_trace, or_skip, run_bar, shown
from ui.tabs.shown_runs import ChartPanel, connect_recorded, connect_share, recorded_menu, recorded_message

COMPLETE = "complete"
VIEW = "decode-view"
MODES = [("Complete a text", COMPLETE), ("Chat", CHAT)]
JUDGING = ("acceptance", "temperature", "epsilon", "delta")  # settings that the view can restore
# The tour's cards are about branches: its runs have them whatever the controls hold.
TOUR: dict[str, Any] = {"method": GenerationConfig.method, "tree": DEFAULT}
TOUR_TOKENS = 256  # the cards look at one step after another
RESTORED = """() => {
  const own = JSON.parse(document.querySelector("#decode-view .mdv-host").dataset.restored);
  return NAMES.map((name) => own[name]);
}"""


def _for_tour(held: RunSettings) -> RunSettings:
    """What the controls hold, with the tour's own method, tree and length."""
    tokens = min(held.max_new_tokens or TOUR_TOKENS, TOUR_TOKENS)
    return replace(held, **TOUR, max_new_tokens=tokens)


def build(
    session: Session, selection: gr.State, figures: gr.State, recorded: list[Recording]
) -> tuple[Controls, gr.Textbox]:
    """Lay the tab out and connect it; returns its controls and its prompt.

    `selection` holds a `Selection`, `figures` the `PageFigures`.
    """
    start = recorded[0].settings if recorded else {}
    with gr.Row(elem_classes=["desk", "watch"]):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            mode = gr.Radio(
                MODES, value=COMPLETE, label="What to write", show_label=False, container=False,
                elem_id="decode-mode",
            )  # fmt: skip
            with gr.Column(elem_classes=["mode", "when-complete"]):
                bar = run_bar(session, "decode", "Run", start.get("prompt"))
                picker = recorded_menu(recorded)
            with gr.Column(elem_classes=["mode", "when-chat"]):
                chat = ChatPanel.build(session)
            # The style sheet folds them: gradio would not tell unmounted controls of their visibility.
            gr.Checkbox(False, label="Examples, settings", container=False, elem_id="decode-more")
            with gr.Column(elem_id="decode-settings"):
                brought = session.models.settings_brought(selection.value)
                controls = build_controls(selection, brought, start, session.policy.most_tokens)
        with gr.Column(elem_classes="stage"):
            view = DecodeView(
                recorded_message(recorded[0], session.figures.begin()) if recorded else None, elem_id=VIEW
            )
            charts = ChartPanel.build()

    for one in (bar, chat.bar):
        one.connect_examples(controls.named["penalty"], controls.named["penalty_window"])

    def work(
        flag: StopFlag, slot: RunSlot, text: str, *values: Any, for_tour: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        held = controls.settings(values)
        request = DecodeRequest(text, _for_tour(held) if for_tour else held)
        with drawn_run(session, request, flag, slot) as updates:
            for update in updates:
                yield *shown(update), or_skip(update.message)
        yield gr.skip(), gr.skip(), message_rest()

    def draw(slot: RunSlot, dark: bool) -> tuple[Any, ...]:
        return charts.updates(kept_trace(session, slot), dark)

    # The charts are not outputs of the stream: gradio touches every output at every step.
    slot = gr.State(RunSlot())
    inputs = [slot, bar.prompt, *controls.inputs()]
    run = connect_run(session, bar, work, inputs, [view], selection)
    tour = replace(bar, run=gr.Button("Run", visible="hidden", elem_id="learn-run"), prompt=None)
    toured = connect_run(session, tour, partial(work, for_tour=True), inputs, [view], selection)
    reply = chat.connect(session, controls, view, slot)
    chat.connect_notice(session, mode, selection)
    for event in (run, toured, reply):
        event.then(draw, [slot, charts.dark], list(charts.plots), **QUIET)
    settings = {"prompt": bar.prompt, **controls.named}
    told = {**settings, "mode": mode}
    tell_view(VIEW, "settings", [part.change for part in told.values()], told)
    tell_view(VIEW, "asked", bar.triggers(), told)
    tell_view(VIEW, "asked", tour.triggers(), told, {**TOUR, "copies": False})
    tell_view(VIEW, "asked", chat.bar.triggers(), {**controls.named, "mode": mode})
    tell_view(VIEW, "anew", [chat.anew.click], {})
    back = [settings[name] for name in JUDGING]
    view.undo(None, None, back, js=RESTORED.replace("NAMES", json.dumps(JUDGING)))
    connect_share(view, charts, picker, settings, bar.status, figures, recorded)
    view.play(None, None, picker, js="() => null")  # a run begins: what is shown is no longer a recording
    selection.change(
        _say_tree, [selection, controls.named["method"]], [bar.status, chat.bar.status], **AT_ONCE
    )
    # The charts come after the first paint, in the theme the browser shows.
    painted = page_under_way().load(None, None, charts.dark, js=DARK_THEME)
    if recorded:
        painted.then(
            lambda dark: charts.updates(recorded[0].trace, dark, recording=True),
            charts.dark,
            list(charts.plots),
            **QUIET,
        )
        connect_recorded(recorded, figures, picker, settings, view, charts, [bar.status, bar.badge])
    return controls, cast("gr.Textbox", bar.prompt)


def _say_tree(selection: Selection, method_name: str) -> tuple[str, str]:
    """Name, beside Run and Send, a tree just made in another tab, as its menu may be folded away."""
    words = sentences(*(Words("Tree for the next run: {0}.", label) for label, _ in selection.tree_entries()))
    if words and not has_tree(method_name):
        title = method(method_name).title
        words = sentences(words, Words("It counts for nothing with the method “{0}”: choose another.", title))
    return words, words
