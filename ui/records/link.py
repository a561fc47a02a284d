"""What a link to the page carries: a recorded run, or prompt and settings of one to be made, and a step.

A link says only what differs from the engine's defaults, so that it stays short (`assets/web/share/link.js`
writes it). Links of earlier pages hold all settings as JSON and are read too.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from medusa_core.drafters import method_names
from medusa_core.drafters._options import differing_defaults, option_defaults
from medusa_core.errors import MedusaError
from ui.records.outside import MOST_LINK_CHARACTERS, outside_defaults, outside_kinds, settings_of_link

MOST_STEPS = 100_000  # no run of the page has as many
DAMAGED = "the link is damaged: copy it again from the page it is of"


@dataclass(frozen=True)
class Link:
    """The name of a recorded run or the settings of a run, by control; ``step`` counts from 0."""

    recorded: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    step: int = 0


def read_link(text: str, recorded: Collection[str]) -> Link:
    """The link whose parts the browser sent as JSON, {"link": {name: text}}. Raises MedusaError."""
    parts = _parts(text)
    if parts is None:
        return Link(settings=settings_of_link(text))
    step = int(_number("step", parts.pop("step", "1"), int))
    if not 1 <= step <= MOST_STEPS:
        raise MedusaError(f"the link names step {step}: steps go from 1 to {MOST_STEPS}")
    if "recorded" in parts:
        if parts["recorded"] not in recorded:
            raise MedusaError("the link names a recorded run that this page has not: choose one of its menu")
        return Link(recorded=parts["recorded"], step=step - 1)
    kinds = outside_kinds()
    values = {name: _value(name, value, kinds.get(name, str)) for name, value in parts.items()}
    own = option_defaults(values["method"]) if values.get("method") in method_names() else {}
    usual = {name: value for name, value in outside_defaults().items() if value is not None}
    whole = {**usual, **{name: own[name] for name in differing_defaults() if name in own}, **values}
    return Link(settings=settings_of_link(json.dumps(whole)), step=step - 1)


def _parts(text: str) -> dict[str, str] | None:
    """The parts of a link, None for one that an earlier page has made."""
    if len(text) > MOST_LINK_CHARACTERS:
        raise MedusaError(f"the link carries more than {MOST_LINK_CHARACTERS} characters: shorten its prompt")
    try:
        carried = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MedusaError(DAMAGED) from error
    parts = carried.get("link") if isinstance(carried, dict) else None
    if not isinstance(parts, dict):
        return None
    if not parts or not all(isinstance(value, str) for value in parts.values()):
        raise MedusaError(DAMAGED)
    return parts


def _value(name: str, text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise MedusaError(f"{name} is {text[:60]!r}, not true or false: correct it")
        return text == "true"
    return _number(name, text, float if kind is float else int)


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except (ValueError, OverflowError) as error:
        words = "a number" if kind is float else "a whole number"
        raise MedusaError(f"{name} is {text[:60]!r}, not {words}: correct it") from error
