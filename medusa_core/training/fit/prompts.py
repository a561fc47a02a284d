"""Which prompts a fit trains on, calibrates on and measures with: three sets that share no prompt.

Prompts of the user's own are split; without any, held-out beginnings are drawn from the model itself, and
those with which an answer happens to begin are dropped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from transformers import PreTrainedTokenizerBase

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import shipped_prompts
from medusa_core.text.chat_template import chat_ids
from medusa_core.training.answers import INVENTED_TEMPERATURE
from medusa_core.training.examples import Example, data_files, read_examples
from medusa_core.training.run_folder import read_record, write_record

PROMPTS = "prompts"  # folder of the training prompts
HELDOUT = "heldout.json"
FEWEST_PROMPTS = 8
_SHARE = 8  # every so many prompts one calibrates and another measures
_MOST = 32
_LEAST = 2
_CHARACTERS = 16  # characters read for each token of the beginning: far more than a token has
_TRIES = 4  # beginnings drawn for each that is needed, before giving up


Ids = Annotated[list[Annotated[int, Field(strict=True, ge=0)]], Field(min_length=1)]
Prompts = Annotated[list[Ids], Field(min_length=1)]


@dataclass(frozen=True)
class HeldOut:
    """Prompts as token ids; the two share none with each other nor with the training."""

    calibration: Prompts
    measuring: Prompts


def split_prompts(
    path: Path, tokenizer: PreTrainedTokenizerBase, folder: Path, prompt_tokens: int, seed: int
) -> HeldOut:
    """Write the training prompts as ``<folder>/prompts/<kind>.jsonl`` and return the held-out ones.

    Prompts with the same beginning count once. Raises MedusaError when a file is bad or holds too few.
    """
    found: dict[tuple[int, ...], tuple[str, Example]] = {}
    for file in data_files(path):
        kind = file.name.split(".")[0] or PROMPTS
        for example in read_examples(file, answered=False):
            ids = prompt_ids(example, tokenizer, prompt_tokens)
            found.setdefault(tuple(ids), (kind, example))
    if len(found) < FEWEST_PROMPTS:
        raise MedusaError(
            f"{path} holds {len(found)} different prompts, a fit needs {FEWEST_PROMPTS}: some to train on, "
            "others to calibrate on and to measure with; add prompts, or leave --prompts out"
        )
    keys = list(found)
    order = [keys[i] for i in np.random.default_rng(seed).permutation(len(keys))]
    count = min(_MOST, max(_LEAST, len(keys) // _SHARE))
    target = folder / PROMPTS
    target.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for key in order[2 * count :]:
        kind, example = found[key]
        lines.setdefault(kind, []).append(json.dumps(_seed_record(example, tokenizer)))
    for kind, own in lines.items():
        (target / f"{kind}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")
    return HeldOut([list(key) for key in order[:count]], [list(key) for key in order[count : 2 * count]])


def prompt_ids(example: Example, tokenizer: PreTrainedTokenizerBase, prompt_tokens: int) -> list[int]:
    """What the model is given: a text's beginning, or the user's first turn in the chat template.

    Of a short text it is the first half, so that there is something to go on with. Raises MedusaError for a
    dialogue without a chat template.
    """
    text = _as_text(example, tokenizer)
    if text is None:
        if not tokenizer.chat_template:
            raise MedusaError(
                f"{example.place} is a dialogue, but the tokenizer has no chat template: give texts"
            )
        turn = {"role": "user", "content": example.user_turns[0]}
        return chat_ids(tokenizer, [turn], whose=f"{example.place}: the tokenizer's chat template")
    ids = _ids(text, tokenizer, 2 * prompt_tokens)
    whole = example.text is None  # a prompt is meant to be answered as it stands
    return ids[:prompt_tokens] if whole else ids[: min(prompt_tokens, max(1, len(ids) // 2))]


def invented_prompts(
    engine: Engine, openings: list[list[int]], count: int, prompt_tokens: int, seed: int
) -> list[list[int]]:
    """Up to ``count`` different beginnings that the model draws, none of which begins one of ``openings``."""
    tokenizer = engine.require_tokenizer()
    begin = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    settings = GenerationConfig(method="none", temperature=INVENTED_TEMPERATURE, max_new_tokens=prompt_tokens)
    found: list[list[int]] = []
    for number in range(_TRIES * count):
        config = replace(settings, seed=(seed + 1) * 100_003 + number)
        drawn = [token for step in engine.stream([begin], config) for token in step.emitted]
        text = engine.decode_text(drawn)
        ids = engine.tokenize(text)[:prompt_tokens] if text.strip() else []
        if ids and ids not in found and not _begins_one(ids, openings):
            found.append(ids)
        if len(found) == count:
            break
    return found


def answer_openings(answers: Path, tokenizer: PreTrainedTokenizerBase, prompt_tokens: int) -> list[list[int]]:
    """The first tokens of each training text."""
    texts = (example.text for example in read_examples(answers) if example.text is not None)
    return [_ids(text, tokenizer, prompt_tokens) for text in texts]


def _begins_one(prompt: list[int], openings: list[list[int]]) -> bool:
    return any(opening[: len(prompt)] == prompt for opening in openings)


def heldout_of(
    engine: Engine, answers: Path, count: int, prompt_tokens: int, seed: int, *, embedded: bool
) -> HeldOut:
    """Held-out prompts when the user gave none; the embedded model is measured on the shipped ones.

    Raises MedusaError when the model says the same over and over.
    """
    wanted = count if embedded else 2 * count
    openings = answer_openings(answers, engine.require_tokenizer(), prompt_tokens)
    drawn = invented_prompts(engine, openings, wanted, prompt_tokens, seed)
    if len(drawn) < 2 * _LEAST:
        raise MedusaError(
            f"only {len(drawn)} different beginnings came in {_TRIES * wanted} tries: the model says the "
            "same over and over; give it --prompts"
        )
    if not embedded:
        half = len(drawn) // 2
        return HeldOut(drawn[:half], drawn[half:])
    shipped = (ids for ids in shipped_prompts(engine) if not _begins_one(ids[:prompt_tokens], openings))
    return HeldOut(drawn, [ids for ids in shipped if ids not in drawn])


def write_heldout(file: Path, heldout: HeldOut) -> None:
    """Keep the token ids, so that a fit that goes on uses the same prompts."""
    write_record(file, asdict(heldout))


def read_heldout(file: Path) -> HeldOut:
    """The kept prompts. Raises MedusaError where they were damaged."""
    try:
        return TypeAdapter(HeldOut).validate_python(read_record(file))
    except ValidationError as error:
        raise MedusaError(f"{file} holds no held-out prompts: choose another --out") from error


def _ids(text: str, tokenizer: PreTrainedTokenizerBase, count: int) -> list[int]:
    """The first tokens of a text."""
    return tokenizer(text[: count * _CHARACTERS], verbose=False)["input_ids"][:count]


def _as_text(example: Example, tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The text to continue; a single prompt is one too where there is no chat template."""
    if example.text is not None:
        return example.text
    return example.user_turns[0] if example.paired and not tokenizer.chat_template else None


def _seed_record(example: Example, tokenizer: PreTrainedTokenizerBase) -> dict:
    text = _as_text(example, tokenizer)
    return {"turns": list(example.user_turns)} if text is None else {"text": text}
