"""The two lanes of a comparison: which settings the second one overrides, and what tells the two apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from medusa_core.acceptance import rule_info
from medusa_core.config import GenerationConfig
from medusa_core.drafters import Draft, draft_of, drafter_settings, method
from medusa_core.drafters._options import differing_defaults, usual_settings
from medusa_core.drafters.medusa import AUTO
from medusa_core.drafters.medusa import NAME as MEDUSA
from ui.records.settings import (
    BUDGETED,
    BY_BUDGET,
    DEFAULT,
    DYNAMIC,
    YOURS,
    RunSettings,
    parted_method,
    whole_method,
)

PLAIN_METHOD = "none"
MEDUSA_LANE = "Medusa"
SYMBOLS = {"epsilon": "ε", "delta": "δ"}
TREE_WORDS = {AUTO: "auto tree", DEFAULT: "the heads’ own tree", YOURS: "your tree"}


@dataclass(frozen=True)
class SecondLane:
    """Where the second lane differs from the settings; None: as in the first lane."""

    method: str | None = PLAIN_METHOD
    copies: bool | None = None  # whether it also copies from the text
    acceptance: str | None = None
    tree: str | None = None
    budget: float = 16  # nodes of a `tree` by budget
    heads: str | None = None
    temperature: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    penalty: float | None = None

    def settings(self, first: RunSettings, drafts: Mapping[str, Draft] | None = None) -> RunSettings:
        """This lane's settings, given those of the first one and the loaded weights ``drafts``."""
        held = parted_method(first.method)
        drafter = held["method"] if self.method is None else self.method
        whole = whole_method(drafter, held["copies"] if self.copies is None else self.copies)
        names = ("acceptance", "tree", "heads", "temperature", "penalty")
        own = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.tree in BUDGETED:
            own["budget"] = self.budget
        thresholds = {name: value for name in SYMBOLS if (value := getattr(self, name)) is not None}
        options = first.options
        if whole != first.method:
            brought = {name: draft.settings for name, draft in (drafts or {}).items()}
            defaults = usual_settings(brought)[first.method]
            options = _without_defaults(first, defaults)
        return replace(first, **own, method=whole, options={**options, **thresholds})


def _without_defaults(settings: RunSettings, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options to hand to another method: without those left at defaults that differ by method."""
    own = {item.name for item in fields(method(settings.method).settings)}
    return {
        name: value
        for name, value in settings.options.items()
        if name not in differing_defaults() or (name in own and value != defaults[name])
    }


def what_counts(
    settings: RunSettings, config: GenerationConfig, drafts: Mapping[str, Draft]
) -> dict[str, str]:
    """Each setting that changes such a run, in words by its name; settings without effect are left out.

    ``drafts`` are the weights that its engine has loaded, which may bring settings of their own.
    """
    found = method(config.method)
    words = {
        "method": MEDUSA_LANE if config.method == MEDUSA else found.title,
        "temperature": f"temperature {config.temperature:g}",
        "penalty": f"penalty {config.penalty if config.penalises else 1:g}",
    }
    if config.method == PLAIN_METHOD:
        return words
    words["acceptance"] = config.acceptance
    rule = rule_info(config.acceptance).settings
    brought = vars(drafter_settings(config, draft_of(drafts, config)))
    for item in (*fields(found.settings), *fields(rule)):
        if item.name == "tree":
            nodes = f"{int(settings.budget)} nodes"
            own = {BY_BUDGET: nodes, DYNAMIC: f"dynamic tree of {nodes}"}
            words["tree"] = (TREE_WORDS | own).get(settings.tree, settings.tree)
        else:
            value = config.options.get(item.name, brought.get(item.name, item.default))
            said = f"{value:g}" if isinstance(value, int | float) else value
            words[item.name] = f"{SYMBOLS.get(item.name, item.name)} {said}"
    if found.has_weights:
        words["heads"] = "your heads" if settings.heads == YOURS else "shipped heads"
    return words


def lane_names(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, str]:
    """The method of each lane, with the settings that both have but in which they differ."""
    differ = [name for name in first if name != "method" and second.get(name, first[name]) != first[name]]
    one, other = (" · ".join([lane["method"], *(lane[name] for name in differ)]) for lane in (first, second))
    return one, other
