"""The settings that drafters and acceptance rules bring to a run, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import GenerationConfig, pick_settings
from medusa_core.drafters import method, method_names
from medusa_core.errors import MedusaError


def option_kinds() -> list[type]:
    """The settings records of all drafters and rules."""
    kinds = [method(name).settings for name in method_names()]
    return kinds + [rule_info(name).settings for name in rule_names()]


def option_names() -> list[str]:
    """The names of their settings, each once; two that share a name mean the same by it."""
    return list(dict.fromkeys(item.name for kind in option_kinds() for item in fields(kind)))


def option_defaults() -> dict[str, Any]:
    """The default of each of these settings, by name."""
    return {item.name: item.default for kind in option_kinds() for item in fields(kind)}


def check_options(config: GenerationConfig) -> None:
    """Raise MedusaError for an option that no drafter and no rule has, or that is out of its range."""
    known = option_names()
    if unknown := [name for name in config.options if name not in known]:
        own = [item.name for item in fields(config) if item.name != "options"]
        raise MedusaError(f"no setting is called {unknown[0]!r}: use {', '.join([*own, *known])}")
    for kind in option_kinds():
        pick_settings(kind, config.options)
