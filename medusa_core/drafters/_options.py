"""The settings that drafters and acceptance rules bring to a run, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import AUTO_METHOD, TRUNCATING, GenerationConfig, pick_settings
from medusa_core.drafters import (
    drafter_names,
    drafters_of,
    method,
    method_names,
    methods_in_words,
)
from medusa_core.errors import MedusaError, SettingError, name_fix


def option_kinds() -> dict[str, type]:
    """The settings records of all drafters and rules, by their owners' names."""
    kinds = {name: method(name).settings for name in drafter_names()}
    return kinds | {name: rule_info(name).settings for name in rule_names()}


def option_names() -> list[str]:
    """The names of their settings, each once; two that share a name mean the same by it."""
    return list(dict.fromkeys(item.name for kind in option_kinds().values() for item in fields(kind)))


def option_defaults(name: str = GenerationConfig.method) -> dict[str, Any]:
    """The default of each of these settings, by name: that of the method ``name`` where it has one."""
    kinds = [*option_kinds().values(), method(name).settings]
    return {item.name: item.default for kind in kinds for item in fields(kind)}


def usual_settings(brought: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings of each method for a run that gives none, with those ``brought`` by drafters' weights."""
    found = {}
    for name in method_names():
        own: Any = pick_settings(method(name).settings, brought.get(drafters_of(name)[0], {}))
        found[name] = option_defaults(name) | vars(own)
    return found


def differing_defaults() -> list[str]:
    """The settings whose default is a drafter's own."""
    found: dict[str, set[Any]] = {}
    for name in drafter_names():
        for item in fields(method(name).settings):
            found.setdefault(item.name, set()).add(item.default)
    return [name for name, defaults in found.items() if len(defaults) > 1]


def check_choices(config: GenerationConfig) -> None:
    """Raise SettingError for a method or an acceptance rule that there is none of."""
    for name, value, known, words in (
        ("method", config.method, (AUTO_METHOD, *method_names()), f"{AUTO_METHOD}, {methods_in_words()}"),
        ("acceptance", config.acceptance, rule_names(), ""),
    ):
        if value not in known:
            raise SettingError(f"{name} is {value!r:.30}: {name_fix(value, known, words)}")


def check_options(config: GenerationConfig) -> None:
    """Raise MedusaError for an option that no drafter and no rule has, or that is out of its range."""
    known = option_names()
    if unknown := [name for name in config.options if name not in known]:
        own = [item.name for item in fields(config) if item.name != "options"]
        raise MedusaError(f"no setting is called {unknown[0]!r:.30}: {name_fix(unknown[0], [*own, *known])}")
    for kind in option_kinds().values():
        pick_settings(kind, config.options)


def idle_options(config: GenerationConfig) -> dict[str, str]:
    """The given options that have no effect in such a run, by name, with the choice that disables each."""
    own = {*_names(method(config.method).settings), *_names(rule_info(config.acceptance).settings)}
    idle: dict[str, str] = {}
    for name in [name for name in config.options if name not in own]:
        of_drafter = any(name in _names(method(one).settings) for one in drafter_names())
        idle[name] = f"--method {config.method}" if of_drafter else f"--acceptance {config.acceptance}"
    return idle | _idle_for_logits(config)


def _idle_for_logits(config: GenerationConfig) -> dict[str, str]:
    """Settings of penalty and truncation that have no effect, with the choice that disables each."""
    idle = {}
    if config.penalty > 1 and config.penalty_window == 0:
        idle["penalty"] = "--penalty-window 0"
    if config.penalty == 1 and config.penalty_window != GenerationConfig.penalty_window:
        idle["penalty_window"] = "--penalty 1"
    for name in TRUNCATING if config.temperature <= 0 else ():
        if getattr(config, name) != getattr(GenerationConfig, name):
            idle[name] = "--temperature 0"
    return idle


def _names(kind: type) -> list[str]:
    return [item.name for item in fields(kind)]
