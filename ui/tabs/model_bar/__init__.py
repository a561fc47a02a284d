"""The bar above the tabs: which model this visitor uses, and how to choose another one.

Where others can reach the page it offers only the owner's list, and without a list it only says what runs.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import gradio as gr

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.components.controls import Controls, usual_in_menu
from ui.components.events import AT_ONCE, QUIET, page_under_way
from ui.components.views import TextLine
from ui.records.settings import Selection
from ui.records.updates import StopFlag, Update, with_flag_of_run
from ui.records.words import Words
from ui.runs.session import Session
from ui.serving.models import ModelUpdate
from ui.serving.runner import problem_of
from ui.tabs.model_bar.menu import (
    FIELDS,
    LONGEST_NAME,
    OTHER,
    OWN,
    TEXTS,
    entries,
    record_of,
    remember,
    remembered,
    value_of,
    wish_of,
)

NO_WEIGHTS = Words("no weights here")


def build(session: Session, selection: gr.State) -> gr.events.Dependency:
    """Lay the bar out and connect it. `selection` holds the visitor's `Selection`.

    Returns the event that ends when the app's own model has been loaded.
    """
    with gr.Row(elem_classes="model-bar"):
        line = TextLine(_line(session.models.badge(Selection())), elem_id="model-line", elem_classes="badge")
        if session.policy.free_choice or session.policy.offers:
            _build_picker(session, selection)
    # The load began with the server; a page opened earlier shows its model as soon as it is there.
    loaded = page_under_way().load(lambda: _line(session.load()), None, line, **QUIET)
    selection.change(lambda new: _line(session.models.badge(new), new), selection, line, **AT_ONCE)
    return loaded


def _build_picker(session: Session, selection: gr.State) -> None:
    """The parts that are folded away; those that name any model exist only on the user's own machine."""
    free, flag = session.policy.free_choice, gr.State(StopFlag())
    if free:
        # Not inside the accordion: gradio reads a browser's store when the part around it is first unfolded.
        stored = gr.BrowserState([], storage_key="medusa-models", secret="medusa")
    with gr.Accordion("Change model", open=False, elem_id="model-picker"):
        menu = gr.Dropdown(
            entries(session, []), value=OWN, label="Model", filterable=False, elem_id="model-menu",
            info="used in all tabs; heads you train and trees you make belong to one model",
        )  # fmt: skip
        if free:
            whole, named = _another(session.models.own_config)
        with gr.Row(elem_classes="run-row"):
            load = gr.Button("Load", variant="primary", elem_id="model-load", min_width=80)
            if free:
                check = gr.Button("How much memory?", elem_id="model-check", min_width=80)
            cancel = gr.Button("Cancel", interactive=False, elem_id="model-cancel", min_width=80)
        status = TextLine(elem_id="model-status", elem_classes="status")

    def connect(button: gr.Button, work: Callable[..., Any], inputs: list[Any], outputs: list[Any]) -> None:
        """A press of the button starts `work(flag, ...)` beside the runs of the engine."""
        armed = button.click(_arm, flag, [cancel, status], **AT_ONCE)
        event = armed.then(
            with_flag_of_run(work), [flag, *inputs], outputs, concurrency_id="models", concurrency_limit=4,
            **QUIET,
        )  # fmt: skip
        event.then(lambda: gr.Button(interactive=False), None, cancel, **AT_ONCE)

    def choose(stop: StopFlag, mine: Selection, *names: str | bool) -> Iterator[tuple[Any, Any]]:
        work = _updates(session, names, lambda wish: session.models.choose(wish, mine, stop))
        with closing(work) as updates:
            for update in updates:
                new = update.selection if isinstance(update, ModelUpdate) else None
                yield _words(update), new or gr.skip()

    def estimate(stop: StopFlag, *names: str | bool) -> Iterator[Any]:
        work = _updates(session, names, lambda wish: session.models.estimate(wish, stop))
        with closing(work) as updates:
            yield from map(_words, updates)

    def follow(new: Selection, kept: object) -> tuple[Any, ...]:
        """Show in the menu what this browser used before and what is in use."""
        recent = remembered(kept)
        kept = remember(recent, new.model) if new.model else [record_of(one) for one in recent]
        value = value_of(new.model) if new.model else OWN
        return kept, gr.Dropdown(entries(session, remembered(kept)), value=value), gr.Column(visible=False)

    connect(load, choose, [selection, menu, *(named if free else ())], [status, selection])
    cancel.click(_halt, flag, None, **AT_ONCE)
    if free:
        connect(check, estimate, [menu, *named], [status])
        menu.input(lambda value: gr.Column(visible=value == OTHER), menu, whole, **AT_ONCE)
        page_under_way().load(
            lambda kept: gr.Dropdown(entries(session, remembered(kept))), stored, menu, **QUIET
        )
        selection.change(follow, [selection, stored], [stored, menu, whole], **QUIET)


def _another(own: LoadConfig) -> tuple[gr.Column, list[Any]]:
    """Fields that name any model, in the order of `NAMED`; their column is shown once it is asked for."""
    names: dict[str, Any] = {"max_length": LONGEST_NAME, "max_lines": 1, "min_width": 240}
    with gr.Column(visible=False) as whole:
        with gr.Row():
            model = gr.Textbox(
                label="Folder or hub name", elem_id="model-name",
                info="a folder on this machine, or owner/name on the hub", **names,
            )  # fmt: skip
            heads = gr.Textbox(
                label="Heads", elem_id="model-heads",
                info="a folder or hub name; empty: the model’s own; none: without", **names,
            )  # fmt: skip
        with gr.Row():
            menus = [
                gr.Dropdown(
                    list(FIELDS[name].metadata["choices"]), value=getattr(own, name), label=name.capitalize(),
                    info=FIELDS[name].metadata["help"], filterable=False, elem_id=f"model-{name}",
                    min_width=240,
                )
                for name in TEXTS[2:]
            ]  # fmt: skip
        capture = gr.Checkbox(
            own.capture, label="Capture steps", info=FIELDS["capture"].metadata["help"],
            elem_id="model-capture",
        )  # fmt: skip
    return whole, [model, heads, *menus, capture]


def _updates(
    session: Session, names: Sequence[Any], task: Callable[[LoadConfig], Generator[Update, None, None]]
) -> Generator[Update, None, None]:
    """What `task` says of the model that the form names."""
    try:
        wish = wish_of(session, *names)
    except MedusaError as error:
        yield problem_of(error)
        return
    yield from task(wish)


def _line(badge: str, selection: Selection | None = None) -> str:
    """The model, and the visitor's own heads for it where there are some."""
    label = selection.label if selection is not None and selection.engine else ""
    if label:
        return Words("{0} · your heads “{1}” in the Heads menu", badge, label)
    return badge


def _words(update: Update) -> Any:
    """The status of an update; a problem is also shown as a notice, as text."""
    if update.problem:
        gr.Warning(html.escape(update.status or ""), title="")
    return update.status or gr.skip()


def _arm(flag: StopFlag) -> tuple[gr.Button, str]:
    flag.stopped = False
    return gr.Button(interactive=True), "Starting…"


def _halt(flag: StopFlag) -> None:
    flag.stopped = True


def mark_methods(
    session: Session,
    selection: gr.State,
    loaded: gr.events.Dependency,
    menus: Sequence[gr.Dropdown],
    controls: Sequence[Controls],
) -> None:
    """Mark the entries of ``menus`` once the app's own model is ``loaded``, and at each new choice.

    What a model lacks is not known before it is loaded: nothing is marked, and a run says so. Choosing a
    method in ``controls`` sets its sliders to what its weights bring, as far as that is known.
    """

    def marked(mine: Selection) -> list[Any]:
        lacking, brought = session.methods_without_weights(mine), session.models.settings_brought(mine)
        usual = usual_in_menu(brought)
        return [*(gr.Dropdown(_entries(menu, lacking)) for menu in menus), *(usual for _ in controls)]

    outputs = [*menus, *(one.usual for one in controls)]
    for event in (loaded.then, selection.change):
        event(marked, selection, outputs, **AT_ONCE)


def _entries(menu: gr.Dropdown, lacking: Collection[str]) -> list[Any]:
    """The entries that the menu was built with, those of ``lacking`` marked."""
    return [
        (f"{label} · {NO_WEIGHTS}" if value in lacking else label, value) for label, value in menu.choices
    ]
