"""The menus of methods follow the visitor's model: which have weights there, and the settings these bring."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import gradio as gr

from ui.components.controls import Controls, usual_in_menu
from ui.components.events import QUIET
from ui.records.selection import Selection
from ui.records.words import Words
from ui.session import Session

NO_WEIGHTS = Words("no weights here")


def mark_methods(
    session: Session,
    selection: gr.State,
    loaded: gr.events.Dependency,
    menus: Sequence[gr.Dropdown],
    controls: Sequence[Controls],
) -> None:
    """Mark the entries of ``menus`` once the app's own model is ``loaded``, and for each other choice.

    Of a model that is not loaded nobody knows, so nothing is marked; a run says what it lacks. From then on a
    method that is chosen in ``controls`` sets its sliders to what its weights bring.
    """

    def marked(mine: Selection) -> list[Any]:
        lacking, usual = session.methods_without_weights(mine), usual_in_menu(session.drafts_at_hand(mine))
        return [*(gr.Dropdown(_entries(menu, lacking)) for menu in menus), *(usual for _ in controls)]

    outputs = [*menus, *(one.usual for one in controls)]
    for event in (loaded.then, selection.change):
        event(marked, selection, outputs, queue=False, **QUIET)


def _entries(menu: gr.Dropdown, lacking: Collection[str]) -> list[Any]:
    """The entries that the menu was built with, those of ``lacking`` marked."""
    return [
        (f"{label} · {NO_WEIGHTS}" if value in lacking else label, value) for label, value in menu.choices
    ]
