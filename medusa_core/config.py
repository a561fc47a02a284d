"""Every default once, as dataclasses whose fields carry their range and help text.

The command line turns the fields into flags and the app turns them into sliders, so a default, a range or a
sentence of help is written here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from numbers import Integral, Real
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from medusa_core.errors import SettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Raise it when steps are made in a new way, so that earlier timings no longer hold: remembered step times are
# then measured anew, and stored records are called those of an older engine.
# 1: phase by phase in torch. 2: a greedy step is one call of C. 3: one C for every processor.
# 4: AMX where a processor has it, and AVX2 in tiles of its own.
# 5: torch keeps to one thread while C computes, and late calls cost fewer on one thread.
ENGINE_VERSION = 5
NO_HEADS = "none"
AUTO_METHOD = "auto"  # the drafter whose weights are there
WITHOUT_WEIGHTS = "lookup"  # the drafter where no weights are there
TIMED_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # of trees whose steps are timed, the root included
TIMED_ROUNDS = 8  # timed runs of each size
MOST_ROUNDS = 1000  # rounds of a measurement at most
MOST_TOP_K = 2**24  # larger than any vocabulary
MOST_SEED = 2**31 - 1
LARGEST_PORT = 65535
MOST_POSITIONS = 2**24  # beyond it float32 no longer tells neighbours apart
TRUNCATING = ("top_k", "top_p", "min_p")  # settings that leave tokens out of the draws
Settings = TypeVar("Settings", bound="DataclassInstance")


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A dataclass field with a default, help text, an inclusive range and, for sliders, a step."""
    metadata = {"help": help, "low": low, "high": high, "step": step, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class GenerationConfig:
    """Settings of one run.

    ``options`` holds settings of drafters and acceptance rules by their names, such as ``tree`` or
    ``epsilon``; the method and the rule of the run pick theirs from it. Others have their defaults.
    """

    method: str = setting("medusa", "who drafts, as `--method NAME`; none is plain decoding")
    acceptance: str = setting(
        "match",
        "match: the model's own tokens; typical: what it finds plausible enough; rejection: guesses by p/q; "
        "nucleus: draws for each path, biased",
    )
    temperature: float = setting(
        0.0, "0 is greedy; higher flattens the distribution", low=0.0, high=2.0, step=0.05
    )
    penalty: float = setting(
        1.0,
        "divides the logits of recent tokens, multiplies those below 0; 1 is off, TokenSwift has 1.2",
        low=1.0,
        high=2.0,
        step=0.05,
    )
    penalty_window: int = setting(
        1024,
        "how many of the last tokens are penalised, those of the prompt too; 0 is off",
        low=0,
        high=65536,
        step=1,
    )
    top_k: int = setting(
        0,
        "only this many of the likeliest tokens are ever drawn; 0 is off",
        low=0,
        high=MOST_TOP_K,
        step=1,
    )
    top_p: float = setting(
        1.0,
        "only the fewest likeliest tokens whose p sum to this are ever drawn; 1 is off",
        low=0.01,
        high=1.0,
        step=0.01,
    )
    min_p: float = setting(
        0.0,
        "tokens less likely than this share of the likeliest are never drawn; 0 is off",
        low=0.0,
        high=1.0,
        step=0.01,
    )
    max_new_tokens: int = setting(128, "token budget of the run", low=1, high=1_000_000, step=1)
    seed: int = setting(0, "seed of all random draws", low=0, high=MOST_SEED, step=1)
    ignore_eos: bool = setting(False, "go on after the end-of-text token")
    stop: tuple[str, ...] = setting((), "text that ends the run")
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def penalises(self) -> bool:
        """Whether the run has a contextual penalty."""
        return self.penalty != 1 and self.penalty_window > 0

    @property
    def truncation(self) -> dict[str, Any]:
        """The settings that leave tokens out of the draws, by name; none at temperature 0, without draws."""
        values = {name: getattr(self, name) for name in TRUNCATING if self.temperature > 0}
        return {name: value for name, value in values.items() if value != getattr(type(self), name)}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """A record from names and values; names that are no fields go into ``options``."""
        return cls().changed(**values)

    def changed(self, **values: Any) -> Self:
        """A copy with other values; names that are no fields go into ``options``."""
        own = {item.name for item in fields(self)}
        options = {name: value for name, value in values.items() if name not in own}
        core = {name: value for name, value in values.items() if name in own}
        return replace(self, **{"options": {**self.options, **options}} | core)


# Settings of a run that are a number or a switch: the page's controls, links and traces hold each of them.
RUN_SETTINGS = {
    item.name: item.default for item in fields(GenerationConfig) if isinstance(item.default, int | float)
}


@dataclass(frozen=True)
class LoadConfig:
    """What to load and where to put it."""

    model: str = setting(
        "", "folder or hub name[@revision] of the base model, or of heads that name it; default: embedded"
    )
    heads: str = setting(
        "", "folder or hub name[@revision] of the heads; none: the bare base; default: the model's"
    )
    dtype: str = setting("auto", "dtype of the weights", choices=("auto", "float32", "bfloat16", "float16"))
    device: str = setting("auto", "where to run", choices=("auto", "cpu", "cuda", "mps"))
    quantize: str = setting(
        "none",
        "store the base's weights in 4 or 8 bits, by bitsandbytes or, 8 on a CPU, in C; not the heads'",
        choices=("none", "8bit", "4bit"),
    )
    context: int = setting(
        0,
        "positions of a text, more than the model was trained with (see --extend); 0: the model's own",
        low=0,
        high=MOST_POSITIONS,
    )
    extend: str = setting(
        "yarn",
        "how --context goes beyond the trained one: yarn stretches the rotary positions; window lets each "
        "token see the last ones alone, as many as were trained",
        choices=("yarn", "window"),
    )
    capture: bool = setting(
        True,
        "on an NVIDIA GPU, capture each step once as a CUDA graph and replay it; "
        "off: launch each kernel anew",
    )
    trust_remote_code: bool = setting(
        False, "run Python code that the model's folder brings; only for authors you trust"
    )

    def __post_init__(self) -> None:
        check_settings(self)


def pick_settings(kind: type[Settings], options: Mapping[str, Any]) -> Settings:
    """A settings record from what ``options`` has for it. Raises SettingError for a value out of range."""
    picked = kind(**{item.name: options[item.name] for item in fields(kind) if item.name in options})
    check_settings(picked)
    return picked


def with_defaults(kind: type[Settings], **defaults: Any) -> type[Settings]:
    """The same settings with other defaults."""
    own = [item for item in fields(kind) if item.name in defaults]
    changed = [(i.name, i.type, field(default=defaults[i.name], metadata=i.metadata)) for i in own]
    return make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True)


def check_settings(config: Any) -> None:
    """Raise SettingError when a field of a settings dataclass is of another kind or out of its range."""
    for item in fields(config):
        value, meta = getattr(config, item.name), item.metadata
        if meta.get("choices") and value not in meta["choices"]:
            raise SettingError(f"{item.name} is {value!r}: use one of {', '.join(meta['choices'])}")
        low, high = meta.get("low"), meta.get("high")
        if low is not None or high is not None:
            whole = isinstance(item.default, int)
            _require_kind(
                item.name, value, Integral if whole else Real, "a whole number" if whole else "a number"
            )
        elif isinstance(item.default, bool):
            _require_kind(item.name, value, bool, "True or False")
        elif item.type == "str":
            _require_kind(item.name, value, str, "a text")
        elif item.name == "options":
            _require_kind(item.name, value, Mapping, "a dictionary of settings by name")
        elif isinstance(item.default, tuple):
            _require_kind(item.name, value, list | tuple, "a text, or several as a tuple")
            for text in value:
                _require_kind(f"an entry of {item.name}", text, str, "a text")
        if isinstance(value, float) and math.isnan(value):  # no comparison would refuse it
            raise SettingError(f"{item.name} is nan: give a number{_range_words(low, high)}")
        if low is not None and value < low:
            raise SettingError(f"{item.name} is {value}, the smallest is {low}: raise it")
        if high is not None and value > high:
            raise SettingError(f"{item.name} is {value}, the largest is {high}: lower it")
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingError(f"{item.name} is {value}: give a number")


def whole_numbers(text: str, name: str, low: int | None = None, high: int | None = None) -> list[int]:
    """The numbers of a setting like "1,2,8". Raises SettingError for other text and those out of range."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"{name} is {text!r}: write numbers with commas, as in 1,2,8") from error
    if (low is not None and min(found) < low) or (high is not None and max(found) > high):
        raise SettingError(f"{name} is {text!r}: give whole numbers{_range_words(low, high)}")
    return found


def _require_kind(name: str, value: Any, kind: type | UnionType, words: str) -> None:
    """Raise SettingError for a value of another kind; True and False are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SettingError(f"{name} is {value!r} ({type(value).__name__}): give {words}")


def _range_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f" of at least {low}"
