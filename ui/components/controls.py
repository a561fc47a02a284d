"""The settings of a run as form controls: label, range, default and help come from `GenerationConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import gradio as gr

from medusa_core.config import GenerationConfig
from medusa_core.drafters import method, method_names
from medusa_core.options import option_defaults, option_kinds, usual_settings
from ui.components.events import QUIET
from ui.records.selection import DEFAULT, YOURS, Selection
from ui.records.settings import BY_BUDGET, MOST_NODES, MOST_TOKENS, PAGE_HIGHEST, RunSettings

if TYPE_CHECKING:
    from medusa_core.drafters import Draft

LABELS = {
    "temperature": "Temperature",
    "epsilon": "ε",
    "delta": "δ",
    "max_new_tokens": "New tokens at most",
    "acceptance": "Acceptance rule",
    "seed": "Seed",
    "penalty": "Penalty",
    "penalty_window": "Penalty window",
    "min_p": "min-p",
    "ignore_eos": "Go on after the end of the text",
    "draft_top_k": "Drafts: guesses considered",
    "draft_depth": "Drafts: depth",
    "draft_nodes": "Drafts: nodes",
    "lookup_ngram": "Lookup: tokens to match",
    "lookup_tokens": "Lookup: tokens to draft",
}
FIELDS = {field.name: field for kind in (GenerationConfig, *option_kinds()) for field in fields(kind)}


@dataclass(frozen=True)
class Controls:
    """The controls of one tab, in the order in which `read` takes their values."""

    temperature: gr.Slider
    epsilon: gr.Slider
    delta: gr.Slider
    max_new_tokens: gr.Slider
    acceptance: gr.Radio
    tree: gr.Dropdown
    budget: gr.Slider
    seed: gr.Number
    heads: gr.Dropdown
    method: gr.Dropdown
    penalty: gr.Slider
    penalty_window: gr.Slider
    min_p: gr.Slider
    ignore_eos: gr.Checkbox
    selection: gr.State  # a Chosen: what stands behind "yours" in the menus of trees and heads
    usual: gr.Textbox  # JSON for the browser: what a method's settings are where nothing was chosen
    options: Mapping[str, gr.Slider]  # the drafters' own settings beside the tree, by name

    def inputs(self) -> list[Any]:
        """The components, as inputs of an event."""
        return list(self._parts().values())

    def by_name(self) -> dict[str, Any]:
        """The components that a visitor sets, by name."""
        return {name: part for name, part in self._parts().items() if name != "selection"}

    def settings(self, values: Sequence[Any]) -> RunSettings:
        """What the event was given for them."""
        return RunSettings.of(dict(zip(self._parts(), values, strict=True)))

    def _parts(self) -> dict[str, Any]:
        others = ("options", "usual")
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in others}
        return {**named, **self.options}


def build_controls(
    trees: Sequence[tuple[str, str]],
    rules: Sequence[str],
    selection: gr.State,
    start: Mapping[str, Any] | None = None,
    most_tokens: int = MOST_TOKENS,
) -> Controls:
    """Lays the controls out for a narrow column. `trees`: (label, name), the default first.

    `start` has values to begin with, by name; the others begin with the engine's defaults. `most_tokens` are
    those of one run.
    """
    start = start or {}
    known = {name: field.default for name, field in FIELDS.items()}
    known |= option_defaults(start.get("method", GenerationConfig.method))
    begin = {name: start.get(name, default) for name, default in known.items()}
    with gr.Column(elem_classes="settings-column"):
        temperature, epsilon, delta, max_new_tokens = (
            slider(name, begin[name], most_tokens, elem_classes=mark(name))
            for name in ("temperature", "epsilon", "delta", "max_new_tokens")
        )
        ignore_eos = gr.Checkbox(
            begin["ignore_eos"], label=LABELS["ignore_eos"], info="until the tokens are used up",
            elem_classes=mark("ignore_eos"),
        )  # fmt: skip
    with gr.Column(elem_classes="settings-column"):
        acceptance = gr.Radio(
            list(rules),
            value=begin["acceptance"],
            elem_classes=mark("acceptance"),
            label=LABELS["acceptance"],
            info=FIELDS["acceptance"].metadata["help"],
        )
        # Always to be seen: a tab that is not open yet takes over a new value, but not a new visibility.
        heads = gr.Dropdown(
            Selection().head_entries(), value=DEFAULT, label="Heads", info="whose guesses fill the tree",
            elem_classes=mark("heads"), filterable=False,
        )  # fmt: skip
        method_menu = gr.Dropdown(
            [(method(name).title, name) for name in method_names()], value=begin["method"],
            label="Method", info="who makes the guesses; where the model has no weights for it, nobody does",
            elem_classes=mark("method"), filterable=False,
        )  # fmt: skip
        tree = gr.Dropdown(
            list(trees), value=start.get("tree", trees[0][1]), label="Tree",
            info="which guesses are combined", elem_classes=mark("tree"),
            filterable=False,
        )  # fmt: skip
        budget = gr.Slider(
            2, MOST_NODES, value=16, step=1,
            label="Node budget", info="nodes of the tree “by node budget”", visible=False,
            elem_classes=mark("budget"),
        )  # fmt: skip
        seed = gr.Number(
            begin["seed"], label=LABELS["seed"], info=FIELDS["seed"].metadata["help"],
            precision=0, minimum=0, maximum=2**31 - 1, elem_classes=mark("seed"),
        )  # fmt: skip
    options = _option_sliders(begin)
    with gr.Accordion("Penalty and min-p", open=False, elem_classes="more-settings"):
        penalty, window, min_p = (
            slider(name, begin[name], elem_classes=mark(name))
            for name in ("penalty", "penalty_window", "min_p")
        )
    method_menu.change(
        lambda name: [_option_update(option, name) for option in options],
        method_menu, list(options.values()), queue=False, **QUIET,
    )  # fmt: skip
    # In the browser, so that a run that is started at once has them. Only where a person chooses: a recording
    # or a link brings values of its own.
    usual = gr.Textbox(
        usual_in_menu({}), label="Usual settings", visible="hidden", elem_classes="usual-settings"
    )
    taken = f"(name, usual) => {json.dumps(list(options))}.map((option) => JSON.parse(usual)[name][option])"
    method_menu.input(None, [method_menu, usual], list(options.values()), js=taken, **QUIET)
    tree.input(
        lambda name: gr.Slider(visible=name == BY_BUDGET), tree, budget,
        queue=False, **QUIET,
    )  # fmt: skip
    selection.change(
        lambda new: _offer(trees, new), selection, [tree, budget, heads],
        queue=False, **QUIET,
    )  # fmt: skip
    return Controls(
        temperature, epsilon, delta, max_new_tokens, acceptance, tree, budget, seed, heads, method_menu,
        penalty, window, min_p, ignore_eos, selection, usual, options,
    )  # fmt: skip


def usual_in_menu(drafts: Mapping[str, Draft]) -> str:
    """The numbers that each method's drafter has where nothing was chosen, with the weights in ``drafts``.

    As JSON, for the browser alone.
    """
    names, usual = _option_names(), usual_settings(drafts)
    return json.dumps({name: {option: own[option] for option in names} for name, own in usual.items()})


def _option_sliders(begin: Mapping[str, Any]) -> dict[str, gr.Slider]:
    """A slider for each number that a drafter brings, in sight while its method is chosen."""
    own = _options_of(begin["method"])
    with gr.Column(elem_classes="settings-column"):
        return {
            name: slider(name, begin[name], visible=name in own, elem_classes=mark(name))
            for name in _option_names()
        }


def _option_names() -> list[str]:
    """Names of the numbers that drafters bring."""
    of_drafters = {name for one in method_names() for name in _options_of(one)}
    return [name for name, field in FIELDS.items() if name in of_drafters and field.metadata.get("high")]


def _option_update(option: str, name: str) -> gr.Slider:
    """The slider of a setting while the method ``name`` is chosen, with what the setting does there."""
    own = {field.name: field for field in fields(method(name).settings)} if name in method_names() else {}
    return gr.Slider(visible=option in own, info=own.get(option, FIELDS[option]).metadata["help"])


def _options_of(name: str) -> list[str]:
    """Names of the settings that a method brings."""
    return [field.name for field in fields(method(name).settings)] if name in method_names() else []


def has_tree(name: str) -> bool:
    """Whether the tree that is chosen counts with this method."""
    return "tree" in _options_of(name)


def _offer(
    trees: Sequence[tuple[str, str]], selection: Selection
) -> tuple[gr.Dropdown, gr.Slider, gr.Dropdown]:
    """Menus that hold the visitor's own tree and heads, and select them: they have just been chosen."""
    own = selection.tree_entries()
    tree = gr.Dropdown([*trees[:1], *own, *trees[1:]], value=YOURS if own else trees[0][1])
    heads = gr.Dropdown(selection.head_entries(), value=YOURS if selection.engine else DEFAULT)
    return tree, gr.Slider(visible=False), heads


def mark(name: str) -> str:
    """The class by which the page finds the control of a setting, to say something beside it."""
    return f"setting-{name}"


def slider(name: str, value: float, most_tokens: int = MOST_TOKENS, **kwargs: Any) -> gr.Slider:
    """A slider for one numeric field of the configuration."""
    field = FIELDS[name]
    high = field.metadata["high"]
    return gr.Slider(
        field.metadata["low"],
        most_tokens if name == "max_new_tokens" else PAGE_HIGHEST.get(name, high),
        value=value,
        step=field.metadata["step"],
        label=LABELS.get(name, name.replace("_", " ").capitalize()),
        info=field.metadata["help"],
        **kwargs,
    )


@dataclass(frozen=True)
class ExampleButton:
    """A button that fills in a prompt, and the penalty with which its kind of text reads well."""

    button: gr.Button
    text: str
    penalty: float
    penalty_window: int

    def fills(self, prompt: gr.Textbox, penalty: gr.Slider, window: gr.Slider) -> None:
        """A click fills the three without asking the server."""
        values = json.dumps([self.text, self.penalty, self.penalty_window])
        self.button.click(None, None, [prompt, penalty, window], js=f"() => {values}")


def example_buttons(kinds: list[dict[str, Any]]) -> tuple[ExampleButton, ...]:
    """Small buttons named by kind, one a prompt; what they fill in is connected by `fills`."""
    with gr.Row(elem_classes="examples"):
        return tuple(
            ExampleButton(
                gr.Button(f"{kind['kind']}: {example['label']}", size="sm", min_width=0, scale=0),
                example["text"],
                kind.get("penalty", GenerationConfig.penalty),
                kind.get("penalty_window", GenerationConfig.penalty_window),
            )
            for kind in kinds
            for example in kind["prompts"]
        )
