"""The records of a trace, versioned by ``schema_version``, and the reader of its files.

Files are written in the compact form of `packed`, version 3. Those of version 2, which hold these records as
they are, and of version 1, which knew Medusa's heads alone, are still read.

The pydantic models say what is wrong with a bad file: wrong kinds, numbers that are none or out of range, and
steps that contradict themselves or each other.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import pick_settings
from medusa_core.drafters import method, method_names
from medusa_core.errors import MedusaError
from medusa_core.files import read_bytes
from medusa_core.trace.packed import PACKED_VERSION, UNPACKED_VERSION, unpacked
from medusa_core.trace.step_format import Amount, Count, Record, StepTrace
from medusa_core.trace.version1 import upgraded


class ModelTrace(Record):
    """What was loaded."""

    name: str
    base: str
    heads: str | None
    dtype: str
    device: str
    parameters: Count


class NamedSettings(Record):
    """A drafter or an acceptance rule with the settings it ran with."""

    name: str
    settings: dict[str, bool | int | float | str]


class ConfigTrace(Record):
    """The settings of the run; ``tree`` is the list of rank tuples where it is the same in every step."""

    drafter: NamedSettings
    acceptance: NamedSettings
    temperature: Amount
    seed: Count
    max_new_tokens: Count
    tree: list[list[Count]] | None

    @model_validator(mode="after")
    def _settings_are_possible(self) -> ConfigTrace:
        # Names that are not known here may come from a version that has more drafters or rules.
        if self.drafter.name in method_names():
            _check_settings(self.drafter, method(self.drafter.name).settings)
        if self.acceptance.name in rule_names():
            _check_settings(self.acceptance, rule_info(self.acceptance.name).settings)
        return self


class PromptTrace(Record):
    """The prompt; ``text`` is what its ids decode to, ``texts`` what each does by itself, if it is said."""

    text: str
    token_ids: list[Count]
    texts: list[str] = Field(default=[])


class OutputTrace(Record):
    """The result: new tokens only. ``seconds`` adds up the steps; reading the prompt is not counted."""

    text: str
    token_ids: list[Count]
    finish_reason: Literal["eos", "stop", "length", "context", "cancelled"]
    new_tokens: Count
    steps: Count
    tokens_per_step: Amount
    tokens_per_second: Amount
    seconds: Amount


class SizesTrace(Record):
    """Sizes of the target: hidden states d, vocabulary V and layers."""

    hidden: Count
    vocabulary: Count
    layers: Count


class RunTrace(Record):
    """A whole run. Fields with a default are not in every file of this version."""

    schema_version: Literal[2]
    model: ModelTrace
    config: ConfigTrace
    prompt: PromptTrace
    sizes: SizesTrace | None = None
    temperatures: list[Annotated[float, Field(gt=0)]] = Field(default=[])
    steps: list[StepTrace]
    output: OutputTrace

    @model_validator(mode="after")
    def _is_one_run(self) -> RunTrace:
        for place, step in enumerate(self.steps):
            if step.index != place:
                raise ValueError(f"step {place} has index {step.index}: steps count from 0")
        for step in self.steps:
            for after in step.after:
                found = {len(after.log_z), len(after.entropy)}
                if found != {len(self.temperatures)} or after.node >= len(step.nodes):
                    raise ValueError(
                        f"after node {after.node} of step {step.index} there are {sorted(found)} numbers: "
                        f"the step has {len(step.nodes)} nodes, the run {len(self.temperatures)} temperatures"
                    )
        for step, following in itertools.pairwise(self.steps):
            if step.bonus is None or step.bonus.token_id != following.nodes[0].token_id:
                raise ValueError(
                    f"the bonus token of step {step.index} is not the root of step {following.index}"
                )
            length = step.cache_length + len(step.path)
            if len(step.emitted) != len(step.path) or following.cache_length != length:
                raise ValueError(
                    f"step {step.index} has a path of {len(step.path)} tokens and emits {len(step.emitted)}, "
                    f"the cache grows from {step.cache_length} to {following.cache_length}"
                )
        emitted = [token for step in self.steps for token in step.emitted]
        output = self.output
        if (output.token_ids, output.new_tokens, output.steps) != (emitted, len(emitted), len(self.steps)):
            raise ValueError(
                f"the output says {output.new_tokens} new tokens in {output.steps} steps, the steps emit "
                f"{len(emitted)} in {len(self.steps)}: both must be the same tokens"
            )
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


def read_trace(path: Path) -> RunTrace:
    """Read and check a trace file of any version. Raises MedusaError that says where it is wrong."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise MedusaError(f"cannot read the trace {path}: {error.strerror}") from error
    return parse_trace(data, str(path))


def parse_trace(data: bytes, name: str) -> RunTrace:
    """The trace in a file's bytes, as `read_trace`; ``name`` is what a message calls it."""
    trace, version = _json_of(data), UNPACKED_VERSION
    told = trace.get("schema_version") if trace is not None else None
    if type(told) is int and told > PACKED_VERSION:
        raise MedusaError(
            f"{name} is a trace of version {told}, versions 1 to {PACKED_VERSION} are read here: "
            "update this program, or record the run again"
        )
    try:
        if trace is not None and type(told) is int and told in _UPGRADES:
            version = told
            return RunTrace.model_validate(_UPGRADES[version](trace))
        return RunTrace.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise MedusaError(
            f"{name} is no trace of version {version}: {place}: {first['msg']}{more}"
        ) from error
    except ValueError as error:
        raise MedusaError(f"{name} is no trace of version {version}: {error}") from error


_UPGRADES = {1: upgraded, PACKED_VERSION: unpacked}


def _json_of(data: bytes) -> dict[str, Any] | None:
    """The object in the bytes; None for anything else, which the check of the records judges."""
    try:
        trace = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return trace if isinstance(trace, dict) else None
