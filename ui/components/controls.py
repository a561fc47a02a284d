"""The settings of a run as form controls: label, range, default and help come from `GenerationConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

import gradio as gr

from medusa_core.acceptance import rule_info, rule_names, rules_in_words
from medusa_core.config import RUN_SETTINGS, GenerationConfig
from medusa_core.drafters import PLUS, method, method_names
from medusa_core.drafters._options import option_defaults, option_kinds, usual_settings
from medusa_core.drafters.medusa import AUTO
from ui.components.events import AT_ONCE, QUIET
from ui.records.settings import (
    BUDGETED,
    COPIES_HELP,
    COPIES_LABEL,
    COPYING,
    DEFAULT,
    MOST_NODES,
    MOST_TOKENS,
    PAGE_HIGHEST,
    YOURS,
    RunSettings,
    Selection,
    menu_entries,
    tree_choices,
    whole_method,
)

LABELS = {  # by setting, where its name does not say it
    "epsilon": "ε",
    "delta": "δ",
    "max_new_tokens": "New tokens at most",
    "acceptance": "Acceptance rule",
    "top_k": "top-k",
    "top_p": "top-p",
    "min_p": "min-p",
    "suffix_depth": "Suffix: depth",
    "suffix_least": "Suffix: least share",
    "ignore_eos": "Go on after the end of the text",
    "draft_top_k": "Drafts: guesses considered",
    "draft_depth": "Drafts: depth",
    "draft_nodes": "Drafts: nodes",
    "lookup_ngram": "Lookup: tokens to match",
    "lookup_tokens": "Lookup: tokens to draft",
}
# Moves the sliders to the default settings of a method's drafters.
USUAL = """(name, copies, usual) => {
  const known = JSON.parse(usual);
  const own = (copies && known[name + JOINED]) || known[name];
  return OPTIONS.map((option) => own[option]);
}"""
FIELDS = {
    field.name: field for kind in (GenerationConfig, *option_kinds().values()) for field in fields(kind)
}


@dataclass(frozen=True)
class Controls:
    """The controls of one tab."""

    named: Mapping[str, Any]  # what a visitor sets, by name
    selection: gr.State  # a Selection: what "yours" means in the menus of trees and heads
    usual: gr.Textbox  # JSON for the browser: each method's default settings

    def inputs(self) -> list[Any]:
        return [*self.named.values(), self.selection]

    def settings(self, values: Sequence[Any]) -> RunSettings:
        """The settings in an event's values."""
        given = dict(zip((*self.named, "selection"), values, strict=True))
        whole = whole_method(given["method"], given.pop("copies"))
        return RunSettings.of(**given | {"method": whole})


def build_controls(
    selection: gr.State,
    brought: Mapping[str, Mapping[str, Any]],
    start: Mapping[str, Any] | None = None,
    most_tokens: int = MOST_TOKENS,
) -> Controls:
    """Lays the controls out for a narrow column.

    `brought` are the settings stored with weights, by drafter, as far as they are known before loading.
    `start` holds initial values by name; the other controls start with the engine's defaults. `most_tokens`
    limits one run. Settings of a run or a rule that are not named here go into the accordion.
    """
    start = start or {}
    known = {name: field.default for name, field in FIELDS.items()}
    known |= option_defaults(start.get("method", GenerationConfig.method))
    begin = {name: start.get(name, default) for name, default in known.items()}
    named: dict[str, Any] = {}
    with gr.Column(elem_classes="settings-column"):
        for name in ("temperature", "epsilon", "delta", "max_new_tokens"):
            named[name] = slider(name, begin[name], most_tokens, elem_classes=mark(name))
        named["ignore_eos"] = _switch("ignore_eos", begin, "until the tokens are used up")
    with gr.Column(elem_classes="settings-column"):
        named["acceptance"] = gr.Radio(
            list(rule_names()), value=begin["acceptance"], elem_classes=mark("acceptance"),
            label=label_of("acceptance"), info=" · ".join(rules_in_words()),  # each is translated by itself
        )  # fmt: skip
        # Always visible: a tab that is not open yet takes a new value, but not a new visibility.
        named["heads"] = heads = gr.Dropdown(
            Selection().head_entries(), value=DEFAULT, label="Heads", info="whose guesses fill the tree",
            elem_classes=mark("heads"), filterable=False,
        )  # fmt: skip
        named["method"] = method_menu = gr.Dropdown(
            menu_entries(), value=begin["method"],
            label="Method", info="who makes the guesses; without weights for it, decoding is plain",
            elem_classes=mark("method"), filterable=False,
        )  # fmt: skip
        named["copies"] = copies = gr.Checkbox(
            bool(start.get("copies")), label=COPIES_LABEL, info=COPIES_HELP, elem_classes=mark("copies")
        )
        named["tree"] = tree = gr.Dropdown(
            tree_choices(), value=start.get("tree", AUTO), label="Tree", info="which guesses are combined",
            elem_classes=mark("tree"), filterable=False,
        )  # fmt: skip
        named["budget"] = budget = budget_slider("budget", tree, "nodes of the tree, the root included")
        named["seed"] = gr.Number(
            begin["seed"], label=label_of("seed"), info=FIELDS["seed"].metadata["help"],
            precision=0, minimum=0, maximum=2**31 - 1, elem_classes=mark("seed"),
        )  # fmt: skip
    own = _options_of(whole_method(begin["method"], bool(start.get("copies"))))
    with gr.Column(elem_classes="settings-column"):  # each is shown while the chosen method has it
        options = {
            name: slider(name, begin[name], visible=name in own, elem_classes=mark(name))
            for name in _option_names()
        }
    with gr.Accordion("Penalty and truncation", open=False, elem_classes="more-settings"):
        of_rules = [item for name in rule_names() for item in fields(rule_info(name).settings)]
        numbers = [item.name for item in of_rules if isinstance(item.default, int | float)]
        for name in [name for name in (*RUN_SETTINGS, *numbers) if name not in named]:
            if isinstance(FIELDS[name].default, bool):
                named[name] = _switch(name, begin, FIELDS[name].metadata["help"])
            else:
                named[name] = slider(name, begin[name], elem_classes=mark(name))
    gr.on(
        [method_menu.change, copies.change],
        lambda name, copied: [_option_update(option, whole_method(name, copied)) for option in options],
        [method_menu, copies], list(options.values()), **AT_ONCE,
    )  # fmt: skip
    # In the browser, so that a run started at once has them, and only when a person chooses: a recording or
    # a link brings its own values.
    usual = gr.Textbox(
        usual_in_menu(brought), label="Usual settings", visible="hidden", elem_classes="usual-settings"
    )
    taken = USUAL.replace("OPTIONS", json.dumps(list(options))).replace("JOINED", json.dumps(PLUS + COPYING))
    chosen = [method_menu.input, copies.input]
    gr.on(chosen, None, [method_menu, copies, usual], list(options.values()), js=taken, **QUIET)
    selection.change(_offer, selection, [tree, budget, heads], **AT_ONCE)
    return Controls(named | options, selection, usual)


def usual_in_menu(brought: Mapping[str, Mapping[str, Any]]) -> str:
    """Each method's default settings with those ``brought`` by weights, as JSON for the browser."""
    names, usual = _option_names(), usual_settings(brought)
    return json.dumps({name: {option: own[option] for option in names} for name, own in usual.items()})


def _option_names() -> list[str]:
    """Names of the drafters' numeric settings."""
    of_drafters = {name for one in method_names() for name in _options_of(one)}
    return [name for name, field in FIELDS.items() if name in of_drafters and field.metadata.get("high")]


def _option_update(option: str, name: str) -> gr.Slider:
    """The slider of a setting while the method ``name`` is chosen, with what the setting does there."""
    own = _options_of(name)
    return gr.Slider(visible=option in own, info=own.get(option, FIELDS[option]).metadata["help"])


def _options_of(name: str) -> dict[str, Field[Any]]:
    """The fields of a method's own settings, by name."""
    return {field.name: field for field in fields(method(name).settings)} if name in method_names() else {}


def has_tree(name: str) -> bool:
    """Whether this method uses the chosen tree."""
    return "tree" in _options_of(name)


def _offer(selection: Selection) -> tuple[gr.Dropdown, gr.Slider, gr.Dropdown]:
    """Menus that hold the visitor's own tree and heads, and select them, as they have just been chosen."""
    own = selection.tree_entries()
    tree = gr.Dropdown(tree_choices(own), value=YOURS if own else AUTO)
    heads = gr.Dropdown(selection.head_entries(), value=selection.heads)
    return tree, gr.Slider(visible=False), heads


def mark(name: str) -> str:
    """The class by which the page finds the control of a setting, to say something next to it."""
    return f"setting-{name}"


def budget_slider(name: str, tree: gr.Dropdown, info: str | None = None) -> gr.Slider:
    """The size of a tree by budget, shown while one is chosen in the menu ``tree``."""
    size = gr.Slider(
        2, MOST_NODES, value=16, step=1, label="Node budget", info=info, visible=False,
        elem_classes=mark(name),
    )  # fmt: skip
    tree.input(lambda chosen: gr.Slider(visible=chosen in BUDGETED), tree, size, **AT_ONCE)
    return size


def _switch(name: str, begin: Mapping[str, Any], info: str) -> gr.Checkbox:
    return gr.Checkbox(begin[name], label=label_of(name), info=info, elem_classes=mark(name))


def label_of(name: str) -> str:
    return LABELS.get(name, name.replace("_", " ").capitalize())


def slider(name: str, value: float, most_tokens: int = MOST_TOKENS, **kwargs: Any) -> gr.Slider:
    """A slider for one numeric field of the configuration."""
    field = FIELDS[name]
    high = field.metadata["high"]
    return gr.Slider(
        field.metadata["low"], most_tokens if name == "max_new_tokens" else PAGE_HIGHEST.get(name, high),
        value=value, step=field.metadata["step"], label=label_of(name), info=field.metadata["help"], **kwargs,
    )  # fmt: skip


def example_buttons(kinds: list[dict[str, Any]]) -> tuple[tuple[gr.Button, str], ...]:
    """Small buttons named by kind, one per prompt, each with the values that it fills in, as JSON.

    The values are the prompt, and the penalty and window that suit its kind of text.
    """
    usual = GenerationConfig.penalty, GenerationConfig.penalty_window
    with gr.Row(elem_classes="examples"):
        return tuple(
            (
                gr.Button(f"{kind['kind']}: {example['label']}", size="sm", min_width=0, scale=0),
                json.dumps([example["text"], *map(kind.get, ("penalty", "penalty_window"), usual)]),
            )
            for kind in kinds
            for example in kind["prompts"]
        )
