"""What a run was asked for, as its trace holds it."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import RUN_SETTINGS, GenerationConfig, pick_settings
from medusa_core.drafters import method, method_names

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Record(BaseModel):
    """A part of a trace: no other fields, no other kinds."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False)


ALWAYS_HELD = ("temperature", "max_new_tokens", "seed")  # by each trace, also at their defaults


def held_settings(config: GenerationConfig) -> dict[str, Any]:
    """The numbers and switches of a run that its trace holds, by name."""
    values = {name: getattr(config, name) for name in RUN_SETTINGS}
    return {
        name: value for name, value in values.items() if name in ALWAYS_HELD or value != RUN_SETTINGS[name]
    }


def _field_of(name: str) -> Any:
    """Kind and limits of a setting of the run; one that is not always held is left out at its default."""
    default, limits = RUN_SETTINGS[name], GenerationConfig.__dataclass_fields__[name].metadata
    bounds = {"ge": limits["low"], "le": limits["high"]}
    if name in ALWAYS_HELD:
        return type(default), Field(**bounds)
    return type(default), Field(default=default, exclude_if=lambda value: value == default, **bounds)


class NamedSettings(Record):
    """A drafter or an acceptance rule with the settings it ran with."""

    name: str
    settings: dict[str, bool | int | float | str]


_FIELDS: Any = {name: _field_of(name) for name in RUN_SETTINGS}
_RunTrace: Any = create_model("_RunTrace", __base__=Record, **_FIELDS)


class ConfigTrace(_RunTrace):
    """The settings of the run; ``tree`` is the list of rank tuples where it is the same in every step.

    Numbers and switches are those of `GenerationConfig`. All but ALWAYS_HELD are left out at their defaults,
    so that files of runs without them are as they were before these settings existed.
    """

    drafter: NamedSettings
    acceptance: NamedSettings
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
