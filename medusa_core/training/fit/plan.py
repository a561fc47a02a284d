"""From minutes and measured rates to numbers: how many answers, tokens, prompts a fit can afford.

Pure arithmetic on a short probe's rates; the plan is kept in ``plan.json``, so that a fit that is interrupted
goes on with the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from medusa_core.errors import MedusaError, reason_of
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.run_folder import read_record, write_record

PLAN = "plan.json"
ANSWER_SHARE, TRAIN_SHARE, REST_SHARE = 0.35, 0.50, 0.15  # shares of the time after loading and probing
MOST_PASSES = 4  # how often the training may see an answer, at most
LOADS = 4  # times the model is loaded: to answer, to train, to calibrate and measure, once in float32
FEWEST_ANSWERS = 32
FEWEST_STEPS = 20
LATENCY_SIZES = (1, 2, 4, 8, 16, 32, 64)  # trees to time, the root included
_BATCHES = ((4096, 1000), (2048, 100))  # tokens a step, when there are so many steps of them
_SMALL_BATCH = 1024
_LEAST_SHARE = 0.5  # least share of the minutes for the work itself, however long loading took
_HELDOUT_PROMPTS = 16  # for calibration and for measuring each, when there is time
_HELDOUT_TOKENS = 96
_FEWEST_HELDOUT = (8, 48)  # prompts and tokens: fewer say too little about a head or a speed
_ROUNDS = 3
# Tokens at full size, in units of plain decoding: 16 texts to calibrate on, five runs of every tree size,
# two methods in three rounds and in float32, and fresh heads.
_FULL_REST = _HELDOUT_PROMPTS * _HELDOUT_TOKENS * (1 + 2 * _ROUNDS + 1 + 2) + len(LATENCY_SIZES) * 5 * 32


Count = Annotated[int, Field(strict=True, ge=0)]
Size = Annotated[int, Field(strict=True, ge=1)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_NO_OTHERS = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Rates:
    """What the probe measured on this machine, tokens per second unless it says otherwise."""

    __pydantic_config__ = _NO_OTHERS

    answers: Amount = 0.0
    tokens_per_answer: Amount = 1.0
    heads: Amount = 0.0
    joint: Amount | None = None
    decoding: Amount = 0.0
    load_seconds: Amount = 0.0
    probe_seconds: Amount = 0.0


@dataclass(frozen=True)
class Plan:
    """The numbers of a fit."""

    __pydantic_config__ = _NO_OTHERS

    sequence_length: Size
    batch_tokens: Size
    pass_tokens: Size  # tokens of a forward pass; several make a step where memory is short
    learning_rate: Amount
    answer_tokens: Count
    answers: Count
    tokens: Count  # tokens for training heads with the base frozen
    joint_tokens: Count = 0  # tokens for training heads and adapter together
    heldout_prompts: Count = _HELDOUT_PROMPTS  # to calibrate on, and as many to measure with, at most
    heldout_tokens: Count = _HELDOUT_TOKENS  # written after each
    prompt_tokens: Count = 32  # tokens of a text's beginning that serve as a prompt
    latency_rounds: Count = 4
    rounds: Count = _ROUNDS
    rates: Rates = field(default_factory=Rates)
    seconds: Mapping[str, Amount] = field(default_factory=dict)  # expected, by stage

    @property
    def total_seconds(self) -> float:
        """Expected time of all stages, those before the plan included."""
        return sum(self.seconds.values())


def first_plan(config: FitConfig, width: int, context: int | None) -> Plan:
    """The numbers that need no measurement, for the probe. Raises MedusaError for an odd batch."""
    longest = min(config.sequence_length, context or config.sequence_length)
    length = 1 << (longest.bit_length() - 1)  # a power of two divides every batch
    batch = config.batch_tokens or max(2048, length)
    if batch % length:
        raise MedusaError(
            f"--batch-tokens {batch} is not a multiple of the {length} tokens of a window: make it one"
        )
    room = context or 4 * config.answer_tokens
    return Plan(
        sequence_length=length,
        batch_tokens=batch,
        pass_tokens=batch,
        learning_rate=config.learning_rate or learning_rate(width),
        answer_tokens=min(config.answer_tokens, room // 2),
        answers=config.answer_batch,
        tokens=batch,
        joint_tokens=batch if config.joint else 0,
        heldout_tokens=min(_HELDOUT_TOKENS, room // 2),
        prompt_tokens=min(32, room // 4),
    )


def learning_rate(width: int) -> float:
    """Peak rate of the heads for a short run: high, and lower for wide models (the paper has 2e-3 for 7B)."""
    return 4e-3 if width <= 1024 else 2e-3


def size_plan(first: Plan, config: FitConfig, rates: Rates) -> Plan:
    """Share the minutes out and turn them into numbers; never below what makes a fit at all."""
    available = 60 * config.minutes
    work = max(available - rates.probe_seconds - LOADS * rates.load_seconds, _LEAST_SHARE * available)
    train_rate = rates.heads if not rates.joint else 2 / (1 / rates.heads + 1 / rates.joint)
    answered, trained = share_tokens((ANSWER_SHARE + TRAIN_SHARE) * work, rates.answers, train_rate)
    usual = next((batch for batch, steps in _BATCHES if trained / batch >= steps), _SMALL_BATCH)
    batch = config.batch_tokens or max(usual, first.sequence_length)
    parts = 2 if config.joint else 1
    tokens = max(round(trained / parts / batch), FEWEST_STEPS) * batch
    answers = max(round(answered / rates.tokens_per_answer), FEWEST_ANSWERS)
    share = min(1.0, REST_SHARE * work * rates.decoding / _FULL_REST)
    plan = replace(
        first,
        batch_tokens=batch,
        pass_tokens=min(first.pass_tokens, batch),
        answers=answers,
        tokens=tokens,
        joint_tokens=tokens if config.joint else 0,
        # Fewer texts and shorter ones: both shrink with the root of what there is time for.
        heldout_prompts=max(_FEWEST_HELDOUT[0], round(_HELDOUT_PROMPTS * share**0.5)),
        heldout_tokens=max(
            min(_FEWEST_HELDOUT[1], first.heldout_tokens), round(first.heldout_tokens * share**0.5)
        ),
        latency_rounds=4 if share == 1 else 2,
        rounds=_ROUNDS if share > 0.25 else 2,
        rates=rates,
    )
    return replace(plan, seconds=expected_seconds(plan))


def share_tokens(seconds: float, answer_rate: float, train_rate: float) -> tuple[float, float]:
    """Tokens to write and tokens to train on in ``seconds``.

    The shares are those of the time, unless answers would be written that no training has time to read, or
    would be read more than a few times over.
    """
    answered = seconds * ANSWER_SHARE / (ANSWER_SHARE + TRAIN_SHARE) * answer_rate
    trained = seconds * TRAIN_SHARE / (ANSWER_SHARE + TRAIN_SHARE) * train_rate
    passes = min(max(trained / answered, 1.0), float(MOST_PASSES))
    answered = seconds / (1 / answer_rate + passes / train_rate)
    return answered, passes * answered


def expected_seconds(plan: Plan) -> dict[str, float]:
    """What each stage will take at the probe's rates."""
    rates = plan.rates
    rest = 2 * plan.heldout_prompts * plan.heldout_tokens * (2 + plan.rounds)
    rest += len(LATENCY_SIZES) * (plan.latency_rounds + 1) * 32
    found = {
        "probe": rates.probe_seconds,
        "answers": rates.load_seconds + plan.answers * rates.tokens_per_answer / rates.answers,
        "heads": rates.load_seconds + plan.tokens / rates.heads,
    }
    if plan.joint_tokens and rates.joint:
        found["heads and adapter"] = rates.load_seconds + plan.joint_tokens / rates.joint
    return found | {"calibration and measuring": 2 * rates.load_seconds + rest / rates.decoding}


# --- the file


@dataclass(frozen=True)
class _Kept:
    """The content of the file."""

    settings: dict[str, Any]
    plan: Plan


def write_plan(folder: Path, config: FitConfig, plan: Plan) -> None:
    """Keep the plan and the settings it is for."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"settings": asdict(config), "plan": asdict(plan)}
    write_record(folder / PLAN, record)


def read_plan(folder: Path, config: FitConfig, *, begun: bool) -> Plan | None:
    """The plan kept in ``folder``; None when there is none, or none that was begun for other settings.

    Raises MedusaError when a fit with other settings has begun there.
    """
    file = folder / PLAN
    if not file.exists():
        return None
    try:
        kept = TypeAdapter(_Kept).validate_python(read_record(file))
    except ValidationError as error:
        raise MedusaError(
            f"{file} holds no plan of a fit ({reason_of(error)}): choose another --out"
        ) from error
    now = asdict(config)
    changed = sorted(name for name in now if kept.settings.get(name) != now[name] and name != "out")
    if not changed:
        return kept.plan
    if begun:
        name = changed[0]
        raise MedusaError(
            f"{folder} holds a fit with {name} {kept.settings.get(name)!r}, now it is {now[name]!r}: "
            "choose another --out, or the old settings to go on"
        )
    return None
