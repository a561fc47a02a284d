"""Prompts from files, as token ids, and the flags that choose them.

Knows the common JSONL shapes of prompt sets and nothing about runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from medusa_core.checkpoints import embedded_model
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError


def shipped_prompts(engine: Engine) -> list[list[int]]:
    """The example prompts of the app."""
    kinds = json.loads((embedded_model().parent / "prompts.json").read_text(encoding="utf-8"))
    return [engine.encode(prompt["text"]) for kind in kinds for prompt in kind["prompts"]]


def add_prompt_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that name prompt files and choose a part of each."""
    parser.add_argument(
        "--prompts", action="append", metavar="FILE.jsonl", help="repeatable (default: the shipped prompts)"
    )
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="prompts left out at the start of a file"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts taken from each file (default: all)")


def chosen_prompts(args: argparse.Namespace, engine: Engine) -> list[list[int]]:
    """The prompts the flags ask for. Raises MedusaError when that is none."""
    if args.skip < 0 or (args.limit is not None and args.limit < 1):
        raise MedusaError("--limit starts at 1 and --skip at 0: raise them")
    part = slice(args.skip, None if args.limit is None else args.skip + args.limit)
    if not args.prompts:
        return shipped_prompts(engine)[part]
    prompts = [prompt for name in args.prompts for prompt in read_prompts(Path(name), engine)[part]]
    if not prompts:
        raise MedusaError(f"--skip {args.skip} leaves no prompt of {', '.join(args.prompts)}: lower it")
    return prompts


def read_prompts(file: Path, engine: Engine) -> list[list[int]]:
    """Prompts of a JSONL file as token ids.

    A line is an object with "prompt", "text", "question" or "turns" (its first turn is taken). With a
    "reference" that contains the turn, the prompt is the reference up to the turn's end, so that a dialogue
    keeps its "User:"; otherwise a question goes through the tokenizer's chat template when there is one.
    Raises MedusaError with the number of a bad line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MedusaError(f"cannot read the prompts {file}: {error}") from error
    prompts: list[list[int]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompts.append(engine.encode(_prompt_text(json.loads(line), engine)))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise MedusaError(
                f"line {number} of {file} is no prompt ({error}): "
                'write {"prompt": "…"} or {"turns": ["…"]}'
            ) from error
    if not prompts:
        raise MedusaError(f"{file} holds no prompt")
    return prompts


def _prompt_text(entry: dict, engine: Engine) -> str:
    for name in ("prompt", "text"):
        if name in entry:
            return entry[name]
    turn = entry["question"] if "question" in entry else entry["turns"][0]
    reference = entry.get("reference") or ""
    if isinstance(reference, str) and turn in reference:
        return reference[: reference.index(turn) + len(turn)]
    if engine.tokenizer is not None and engine.tokenizer.chat_template:
        return engine.tokenizer.apply_chat_template(
            [{"role": "user", "content": turn}], tokenize=False, add_generation_prompt=True
        )
    return turn
