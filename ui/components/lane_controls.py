"""The controls of a comparison's second lane: each says "as the first lane" until it is set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr

from medusa_core.acceptance import rule_names
from medusa_core.errors import MedusaError
from ui.components.controls import budget_slider, label_of, mark
from ui.components.events import AT_ONCE
from ui.records.lanes import PLAIN_METHOD, SecondLane
from ui.records.settings import COPIES_LABEL, Selection, menu_entries, tree_choices

SAME = "as the first lane"  # label and value of a menu's first entry
PREFIX = "second-"  # prefix of the settings' names, for the view
NUMBERS = ("temperature", "epsilon", "delta", "penalty")


def build_lane_controls(selection: gr.State) -> dict[str, Any]:
    """Lays the controls out for a narrow column; returns them by the names that `SecondLane` has for them."""
    with gr.Column(elem_classes="settings-column"):
        named: dict[str, Any] = {
            "method": _menu("method", "Method", menu_entries(), PLAIN_METHOD),
            "copies": _menu("copies", COPIES_LABEL, [("yes", True), ("no", False)]),
            "acceptance": _menu(
                "acceptance", label_of("acceptance"), [(name, name) for name in rule_names()]
            ),
            "tree": (tree := _menu("tree", "Tree", tree_choices())),
            "budget": budget_slider(f"{PREFIX}budget", tree),
            "heads": (heads := _menu("heads", "Heads", Selection().head_entries())),
            **{name: _number(name) for name in NUMBERS},
        }

    def offer(new: Selection) -> tuple[gr.Dropdown, gr.Dropdown]:
        return _entries(tree_choices(new.tree_entries())), _entries(new.head_entries())

    selection.change(offer, selection, [tree, heads], **AT_ONCE)
    return named


def read_lane(names: Iterable[str], values: Sequence[Any]) -> SecondLane:
    """The lane in an event's values. Raises MedusaError for a field that does not hold a number."""
    given: dict[str, Any] = {
        name: _read_number(name, value) if name in NUMBERS else None if value == SAME else value
        for name, value in zip(names, values, strict=True)
    }
    return SecondLane(**given)


def _menu(name: str, label: str, entries: Sequence[tuple[str, Any]], value: str = SAME) -> gr.Dropdown:
    marked = mark(PREFIX + name)
    return gr.Dropdown(
        [(SAME, SAME), *entries], value=value, label=label, elem_classes=marked, filterable=False
    )


def _entries(entries: Sequence[tuple[str, str]]) -> gr.Dropdown:
    """A menu with a new list, in which the old choice may be missing."""
    return gr.Dropdown([(SAME, SAME), *entries], value=SAME)


def _number(name: str) -> gr.Textbox:
    # A field of text: gradio's field of numbers cannot be left empty, it shows and sends a 0.
    return gr.Textbox(label=label_of(name), placeholder=SAME, lines=1, elem_classes=mark(PREFIX + name))


def _read_number(name: str, text: str | None) -> float | None:
    words = (text or "").strip()
    if not words:
        return None
    try:
        return float(words.replace(",", "."))
    except ValueError as error:
        raise MedusaError(
            f"{label_of(name)} of the second lane is {words[:24]!r}: write a number, or leave it empty"
        ) from error
