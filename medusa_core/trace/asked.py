"""What a run was asked for, as its trace holds it."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import GenerationConfig, pick_settings
from medusa_core.drafters import method, method_names

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Record(BaseModel):
    """A part of a trace: no other fields, no other kinds."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False)


def _unless_default(name: str) -> Any:
    """A field for a setting of the run that is left out where it has its default."""
    default = getattr(GenerationConfig, name)
    return Field(default=default, exclude_if=lambda value: value == default)


class NamedSettings(Record):
    """A drafter or an acceptance rule with the settings it ran with."""

    name: str
    settings: dict[str, bool | int | float | str]


class ConfigTrace(Record):
    """The settings of the run; ``tree`` is the list of rank tuples where it is the same in every step.

    What is done to the logits, and going on after the end of the text, are left out where they are the
    default, so that files of runs without them are as they were before there was any.
    """

    drafter: NamedSettings
    acceptance: NamedSettings
    temperature: Amount
    penalty: Annotated[float, Field(ge=1)] = _unless_default("penalty")
    penalty_window: Count = _unless_default("penalty_window")
    top_k: Count = _unless_default("top_k")
    top_p: Annotated[float, Field(gt=0, le=1)] = _unless_default("top_p")
    min_p: Share = _unless_default("min_p")
    seed: Count
    max_new_tokens: Count
    ignore_eos: bool = _unless_default("ignore_eos")
    tree: list[list[Count]] | None

    @model_validator(mode="after")
    def _settings_are_possible(self) -> ConfigTrace:
        # Names that are not known here may come from a version that has more drafters or rules.
        if self.drafter.name in method_names():
            _check_settings(self.drafter, method(self.drafter.name).settings)
        if self.acceptance.name in rule_names():
            _check_settings(self.acceptance, rule_info(self.acceptance.name).settings)
        return self


def _check_settings(named: NamedSettings, kind: type) -> None:
    """Raise ValueError for a setting of another kind than its default, or out of range."""
    for item in fields(kind):
        value = named.settings.get(item.name, item.default)
        for sort in (bool, str):
            if isinstance(value, sort) != isinstance(item.default, sort):
                raise ValueError(
                    f"{item.name} of {named.name} is {value!r}, not a {type(item.default).__name__}"
                )
    pick_settings(kind, named.settings)
