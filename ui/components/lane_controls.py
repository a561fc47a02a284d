"""The controls of a comparison's second lane: each says "as the first lane" until it is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.controls import LABELS, MOST_NODES, mark
from ui.components.events import QUIET
from ui.records.lanes import PLAIN_METHOD, SecondLane
from ui.records.selection import Selection
from ui.records.settings import BY_BUDGET, COPIES_LABEL, menu_entries

SAME = "as the first lane"  # label and value of a menu's first entry
PREFIX = "second-"  # prefix of the settings' names, for the view
NUMBERS = ("temperature", "epsilon", "delta", "penalty")


@dataclass(frozen=True)
class LaneControls:
    """The controls in the order in which `read` takes their values."""

    method: gr.Dropdown
    copies: gr.Dropdown
    acceptance: gr.Dropdown
    tree: gr.Dropdown
    budget: gr.Slider
    heads: gr.Dropdown
    temperature: gr.Textbox
    epsilon: gr.Textbox
    delta: gr.Textbox
    penalty: gr.Textbox

    @classmethod
    def build(
        cls, trees: Sequence[tuple[str, str]], rules: Sequence[str], selection: gr.State
    ) -> LaneControls:
        """Lays them out for a narrow column. `trees` are (label, name)."""
        with gr.Column(elem_classes="settings-column"):
            menu = _menu("method", "Method", menu_entries(), PLAIN_METHOD)
            copies = _menu("copies", COPIES_LABEL, [("yes", True), ("no", False)])
            rule = _menu("acceptance", LABELS["acceptance"], [(name, name) for name in rules])
            tree = _menu("tree", "Tree", trees)
            budget = gr.Slider(
                2,
                MOST_NODES,
                value=16,
                step=1,
                label="Node budget",
                visible=False,
                elem_classes=mark(f"{PREFIX}budget"),
            )
            heads = _menu("heads", "Heads", Selection().head_entries())
            numbers = [_number(name) for name in NUMBERS]
        tree.input(lambda name: gr.Slider(visible=name == BY_BUDGET), tree, budget, queue=False, **QUIET)

        def offer(new: Selection) -> tuple[gr.Dropdown, gr.Dropdown]:
            own = [*trees[:1], *new.tree_entries(), *trees[1:]]
            return _entries(own), _entries(new.head_entries())

        selection.change(offer, selection, [tree, heads], queue=False, **QUIET)
        return cls(menu, copies, rule, tree, budget, heads, *numbers)

    def by_name(self) -> dict[str, Any]:
        """The components by the names under which the view hears of them."""
        return {f"{PREFIX}{item.name}": getattr(self, item.name) for item in fields(self)}

    def inputs(self) -> list[Any]:
        """The components, as inputs of an event."""
        return list(self.by_name().values())

    @staticmethod
    def read(values: Sequence[Any]) -> SecondLane:
        """What the event was given for them. Raises MedusaError for a field that holds no number."""
        names = [item.name for item in fields(LaneControls)]
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
    """Another list to choose from: what was chosen of the one before may be gone."""
    return gr.Dropdown([(SAME, SAME), *entries], value=SAME)


def _number(name: str) -> gr.Textbox:
    # A field of text: gradio's field of numbers cannot be left empty, it shows and sends a 0.
    return gr.Textbox(label=LABELS[name], placeholder=SAME, lines=1, elem_classes=mark(PREFIX + name))


def _read_number(name: str, text: str | None) -> float | None:
    words = (text or "").strip()
    if not words:
        return None
    try:
        return float(words.replace(",", "."))
    except ValueError as error:
        label = LABELS[name]
        raise MedusaError(
            f"{label} of the second lane is {words[:24]!r}: write a number, or leave it empty"
        ) from error
