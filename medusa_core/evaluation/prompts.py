"""Prompts from files, as token ids."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.decoding import check_prompt
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_asset, read_text
from medusa_core.text.chat_template import render_chat
from medusa_core.text.prompt_check import check_text

OF_THE_PAGE, HELD_OUT = "prompts.json", "held_out.json"  # prompts that come with the project
_TEXTS = ("prompt", "text")  # names of a prompt that is taken as it is
_SHAPES = '{"prompt": "…"} or {"turns": ["…"]}'


def shipped_prompts(engine: Engine) -> list[list[int]]:
    """The example prompts of the app."""
    return [prompt for prompts in shipped_kinds(engine).values() for prompt in prompts]


def shipped_kinds(engine: Engine, file: str = OF_THE_PAGE) -> dict[str, list[list[int]]]:
    """The app's example prompts by kind of text, or those of another file of the assets."""
    kinds = read_asset(embedded_model().parent / file, list)
    return {kind["kind"]: [engine.encode(prompt["text"]) for prompt in kind["prompts"]] for kind in kinds}


def chosen_prompts(args: argparse.Namespace, engine: Engine) -> list[list[int]]:
    """The prompts the flags ask for. Raises MedusaError when that is none."""
    return [prompt for prompts in chosen_kinds(args, engine).values() for prompt in prompts]


def chosen_kinds(args: argparse.Namespace, engine: Engine) -> dict[str, list[list[int]]]:
    """The prompts the flags ask for by kind of text: a line's "category", otherwise its file's name."""
    part = chosen_part(args)
    if args.prompts:
        found = [prompt for name in args.prompts for prompt in _read_by_kind(Path(name), engine)[part]]
    else:
        shipped = shipped_kinds(engine).items()
        found = [(kind, prompt) for kind, prompts in shipped for prompt in prompts][part]
    if not found:
        source = ", ".join(args.prompts or ["the shipped ones"])
        raise MedusaError(f"--skip {args.skip} leaves no prompt of {source}: lower it")
    kinds: dict[str, list[list[int]]] = {}
    for kind, prompt in found:
        kinds.setdefault(kind, []).append(prompt)
    return kinds


def chosen_part(args: argparse.Namespace) -> slice:
    """The part of each file that --skip and --limit leave. Raises MedusaError."""
    if args.skip < 0 or (args.limit is not None and args.limit < 1):
        raise MedusaError("--limit starts at 1 and --skip at 0: raise them")
    return slice(args.skip, None if args.limit is None else args.skip + args.limit)


def places_of(kinds: Mapping[str, Sequence[list[int]]]) -> dict[str, range]:
    """Where the prompts of each kind stand when all of them are in one list."""
    found, start = {}, 0
    for kind, prompts in kinds.items():
        found[kind] = range(start, start + len(prompts))
        start += len(prompts)
    return found


def read_prompts(file: Path, engine: Engine) -> list[list[int]]:
    """Prompts of a JSONL file as token ids.

    A line is an object with "prompt", "text", "question" or "turns" (its first turn is taken). With a
    "reference" that contains the turn, the prompt is the reference up to the turn's end, so that a dialogue
    keeps its "User:"; otherwise a question goes through the tokenizer's chat template when there is one.
    Raises MedusaError with the number of a bad line.
    """
    return [prompt for _, prompt in _read_by_kind(file, engine)]


def _read_by_kind(file: Path, engine: Engine) -> list[tuple[str, list[int]]]:
    """The prompts of a file, each with its kind of text."""
    engine.require_tokenizer()
    prompts: list[tuple[str, list[int]]] = []
    for number, line in prompt_lines(file):
        try:
            entry = _entry(line)
            kind = entry.get("category")  # as the question files of MT-Bench and Spec-Bench name it
            kind = kind.strip() if isinstance(kind, str) else ""
            prompts.append((kind or file.stem, _prompt_ids(entry, engine)))
        except MedusaError as error:
            raise MedusaError(f"line {number} of {file}: {error}") from error
    return prompts


def prompt_lines(file: Path) -> list[tuple[int, str]]:
    """The lines of a JSONL file that hold something, with their numbers. Raises MedusaError for none."""
    try:
        text = read_text(file)
    except (OSError, ValueError) as error:
        raise MedusaError(
            f"cannot read the prompts {file} ({reason_of(error)}): name a file of JSON lines in UTF-8"
        ) from error
    # Not splitlines, which also splits at characters that a JSON string may hold.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise MedusaError(f"{file} holds no prompt: write one a line, {_SHAPES}")
    return lines


def prompt_text(line: str) -> str:
    """What a line calls its prompt, for a reader; the line itself where it has none."""
    try:
        entry = _entry(line)
        name = next((name for name in (*_TEXTS, "question") if name in entry), None)
        return _turn(entry) if name is None else _string(entry, name)
    except MedusaError:
        return line


def prompt_ids(line: str, engine: Engine) -> list[int]:
    """The prompt of a line as token ids (``read_prompts``). Raises MedusaError for a line that has none."""
    return _prompt_ids(_entry(line), engine)


def _entry(line: str) -> dict:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MedusaError(f"it is not JSON ({reason_of(error)}): write {_SHAPES}") from error
    if not isinstance(entry, dict):
        raise MedusaError(f"it is not a JSON object: write {_SHAPES}")
    return entry


def _prompt_ids(entry: dict, engine: Engine) -> list[int]:
    ids = _encoded(entry, engine)
    check_prompt(ids, engine.target)
    return ids


def _encoded(entry: dict, engine: Engine) -> list[int]:
    for name in _TEXTS:
        if name in entry:
            return engine.encode(_string(entry, name))
    turn = check_text(_turn(entry))
    reference = entry.get("reference") or ""
    if isinstance(reference, str) and turn in reference:
        return engine.encode(reference[: reference.index(turn) + len(turn)])
    if engine.tokenizer is not None and engine.tokenizer.chat_template:
        message = {"role": "user", "content": turn}
        whose, fix = f"the chat template of {engine.info.base}", 'give it as {"prompt": "…"}'
        text = render_chat(engine.tokenizer, [message], answer_next=True, whose=whose, fix=fix)
        return engine.tokenize(text, special=False)  # the template has written them
    return engine.encode(turn)


def _turn(entry: dict) -> str:
    if "question" in entry:
        return _string(entry, "question")
    turns = entry.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return turns[0]
    raise MedusaError(f"it has no prompt: write {_SHAPES}")


def _string(entry: dict, name: str) -> str:
    if not isinstance(entry[name], str):
        raise MedusaError(f'its "{name}" is not text: write {_SHAPES}')
    return entry[name]
