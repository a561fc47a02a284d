"""Settings from outside the page's controls: from a link, a file or a program.

A link names a recorded run, or prompt and settings of a new one, and a step. It names only what differs
from the engine's defaults, so that it stays short (`assets/web/share/link.js` writes it). Settings are
checked as the controls are: known names, values of the right kind and within their range. They name no file,
no model and nothing that a visitor has made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from medusa_core.config import AUTO_METHOD, RUN_SETTINGS, GenerationConfig
from medusa_core.drafters._options import check_choices, differing_defaults, option_defaults
from medusa_core.drafters.medusa import AUTO
from medusa_core.errors import MedusaError, name_fix
from medusa_core.trace.format import parse_trace
from ui.records.settings import (
    LONGEST_RUN,
    MOST_NODES,
    YOURS,
    RunSettings,
    Selection,
    check_prompt,
    make_config,
    parted_method,
)

MOST_LINK_CHARACTERS = 12_000  # a prompt of 8,000 with its escapes, and the settings
_PLAIN = ("method", "acceptance", *RUN_SETTINGS)
MOST_TRACE_BYTES = 6_000_000  # some 400 steps of 64 nodes; assets/web/share/menu.js checks it before sending
MOST_STEP_NODES = 1024
MOST_STEPS = 100_000  # no run of the page has that many
DAMAGED = "the link is damaged: copy it again from the page it came from"
OLD_FORM = "the link was made by an older version of this page: share the run again from this version"


def outside_defaults() -> dict[str, Any]:
    """What may be set, by name, with the engine's defaults; None: the method's own."""
    plain = {item.name: item.default for item in fields(GenerationConfig) if item.name in _PLAIN}
    options = {**option_defaults(), **dict.fromkeys(differing_defaults())}
    return {**plain, **options, "tree": AUTO, "budget": 16}


def outside_kinds() -> dict[str, Any]:
    own = option_defaults()
    return {
        name: type(own[name]) | None if value is None else type(value)
        for name, value in outside_defaults().items()
    }


def settings_from_outside(values: Mapping[str, Any], most_tokens: int = LONGEST_RUN) -> RunSettings:
    """Settings of a run; what is not given has its default. Raises MedusaError.

    ``most_tokens`` is the page's limit of new tokens for one run.
    """
    defaults, kinds = outside_defaults(), option_defaults()
    for name, value in values.items():
        if name not in defaults:
            fix = name_fix(name, defaults, without_list="check its spelling")
            raise MedusaError(f"no setting is called {name!r:.40}: {fix}")
        if value is not None or defaults[name] is not None:
            _require_kind(name, value, kinds.get(name, defaults[name]))
    given = {name: value for name, value in {**defaults, **values}.items() if value is not None}
    check_choices(GenerationConfig(method=given["method"], acceptance=given["acceptance"]))
    if given["tree"] == YOURS:
        raise MedusaError(f"no tree is called {YOURS!r} outside the page it was made in: choose another")
    if not 2 <= given["budget"] <= MOST_NODES:
        raise MedusaError(f"budget is {given['budget']}: choose 2 to {MOST_NODES} nodes")
    settings = RunSettings.of(**given, selection=Selection())
    make_config(settings, most_tokens)
    return settings


def require_prompt(prompt: Any) -> None:
    """Raises MedusaError for anything but a text that the page takes."""
    _require_kind("prompt", prompt, "")
    check_prompt(prompt)


def _require_kind(name: str, value: Any, default: Any) -> None:
    """Raises MedusaError for a value of another kind than the default."""
    if isinstance(default, bool | str):
        right = type(value) is type(default)
    else:
        # Compared, not converted: an integer of 400 digits is not a float.
        right = type(value) in (int, float) and abs(value) <= sys.float_info.max
        right = right and (isinstance(default, float) or value == int(value))
    if not right:
        kind = {bool: "true or false", str: "a text", int: "a whole number"}.get(type(default), "a number")
        raise MedusaError(f"{name} is {json.dumps(value, ensure_ascii=False)[:60]}, not {kind}: correct it")


def uploaded_trace(text: str) -> dict[str, Any]:
    """The trace in a file's text, which is not stored.

    Raises MedusaError for one that is too large, broken or no trace.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MOST_TRACE_BYTES:
        raise MedusaError(
            f"the file has {len(data) / 1e6:.1f} MB, a trace may have {MOST_TRACE_BYTES / 1e6:g}: "
            "record fewer steps"
        )
    trace = parse_trace(data, "the file").model_dump(mode="json")
    if not trace["steps"]:
        raise MedusaError("the file is a trace without steps: there is nothing to show")
    most = max(len(step["nodes"]) for step in trace["steps"])
    if most > MOST_STEP_NODES:
        raise MedusaError(f"a step of the trace has {most} nodes, the page draws {MOST_STEP_NODES}")
    return trace


@dataclass(frozen=True)
class Link:
    """The name of a recorded run or the settings of a run, by control; ``step`` counts from 0."""

    recorded: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    step: int = 0


def read_link(text: str, recorded: Collection[str]) -> Link:
    """The link whose parts the browser sent as JSON, {name: text}. Raises MedusaError."""
    if len(text) > MOST_LINK_CHARACTERS:
        raise MedusaError(f"the link carries more than {MOST_LINK_CHARACTERS} characters: shorten its prompt")
    try:
        parts = TypeAdapter(dict[str, str]).validate_json(text, strict=True)
    except ValidationError as error:
        raise MedusaError(DAMAGED) from error
    if next(iter(parts), "").startswith("{"):
        raise MedusaError(OLD_FORM)
    step = _value(parts.pop("step", "1"), int)
    _require_kind("step", step, 1)
    if not 1 <= step <= MOST_STEPS:
        raise MedusaError(f"the link names step {step}: steps go from 1 to {MOST_STEPS}")
    if "recorded" in parts:
        if parts["recorded"] not in recorded:
            raise MedusaError("the link names a recorded run that this page lacks: choose one from its menu")
        return Link(recorded=parts["recorded"], step=step - 1)
    if not parts:
        raise MedusaError(DAMAGED)
    kinds = outside_kinds()
    values = {name: _value(text, kinds.get(name, str)) for name, text in parts.items()}
    return Link(settings=_held(values), step=step - 1)


def _held(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the values and return those for the controls, with defaults for what a link leaves out."""
    if "prompt" in values:
        require_prompt(values["prompt"])
    settings_from_outside({name: value for name, value in values.items() if name != "prompt"})
    method = values.get("method", outside_defaults()["method"])
    own = {} if method == AUTO_METHOD else option_defaults(method)
    defaults = {name: own.get(name, value) for name, value in outside_defaults().items()}
    whole = {name: value for name, value in defaults.items() if value is not None} | dict(values)
    if method == AUTO_METHOD:  # the page's menu stays as it is
        del whole["method"]
        return whole
    return whole | parted_method(method)


def _value(text: str, kind: Any) -> Any:
    """The text as a value of that kind; the page writes numbers and booleans as JSON does.

    A text that is not one stays as it is, and `_require_kind` refuses it.
    """
    if kind is str:
        return text
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError:
        return text
