"""The card of a run folder: what was trained, on what, how, and what it reached, for people to read.

Every number comes from the run's own files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from medusa_core.files import read_text
from medusa_core.training.config import DrafterConfig
from medusa_core.training.run_folder import METRICS, RESULT, heldout_mean, read_record

CARD, RECIPE = "README.md", "recipe.json"

_NOT_RECIPE = {"out", "evaluate_every", "checkpoint_every", "track"}


def write_card(folder: Path, config: DrafterConfig, finished: Path, guesser: str, hit: str) -> None:
    """Write ``README.md`` into the run folder and into that of its result, from the run's own files.

    The recipe of the text is copied beside it where that was a mixture, so that weights outside the run
    folder still say what they were trained on.
    ``guesser`` is what the numbered scores are of, ``hit`` what a right guess is.
    """
    result = read_record(folder / RESULT)
    if not config.data:
        shutil.copyfile(config.recipe, folder / RECIPE)
    lines = [
        f"# {type(config).__doc__}",
        "",
        f"{result['tokens']:,} training tokens in {result['step']:,} steps.",
        "",
        "## Settings",
        "",
        "| setting | value | meaning |",
        "|---|---|---|",
        *_settings(config),
        "",
        "## Held-out text",
        "",
        f"Loss of the base in nats per token, and how often each {guesser}'s first guess / one of its first",
        f"five guesses is {hit}.",
        "",
        *_heldout(result, guesser),
        "",
        "## Course",
        "",
        *_course(folder, guesser),
    ]
    (folder / CARD).write_text("\n".join(lines) + "\n", "utf-8", "backslashreplace")
    for name in (CARD, RECIPE):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, finished / name)


def _course(folder: Path, guesser: str) -> Iterator[str]:
    """What eight or nine of the evaluations found of the first guesser, as means over the kinds of text."""
    file = folder / METRICS
    records = [json.loads(line) for line in read_text(file).splitlines()] if file.exists() else []
    looks = [record for record in records if any(name.startswith("heldout/") for name in record)]
    looks = looks[:: -(-len(looks) // 8)] + looks[-1:] if len(looks) > 8 else looks
    yield f"| training tokens | loss | {guesser} 1's first guesses | {guesser} 1's loss |"
    yield "|---|---|---|---|"
    for record in {look["tokens"]: look for look in looks}.values():
        top1, loss = (heldout_mean(record, end) for end in ("/top1/1", "/loss/1"))
        yield f"| {record['tokens']:,} | {record['loss']:.3f} | {top1:.3f} | {loss:.3f} |"


def _settings(config: DrafterConfig) -> Iterator[str]:
    for item in fields(config):
        value = getattr(config, item.name)
        if item.name not in _NOT_RECIPE and value != "":
            meaning = item.metadata["help"].replace("|", "\\|")
            yield f"| {item.name} | `{value}` | {meaning} |"


def _heldout(result: dict[str, float], guesser: str) -> Iterator[str]:
    kinds = list(dict.fromkeys(name.split("/")[1] for name in result if name.startswith("heldout/")))
    heads = sum(name.startswith(f"heldout/{kinds[0]}/top1/") for name in result) if kinds else 0
    yield "| kind | base | " + " | ".join(f"{guesser} {head}" for head in range(1, heads + 1)) + " |"
    yield "|---|---|" + "---|" * heads
    for kind in kinds:
        shares = (
            f"{result[f'heldout/{kind}/top1/{head}']:.2f} / {result[f'heldout/{kind}/top5/{head}']:.2f}"
            for head in range(1, heads + 1)
        )
        yield f"| {kind} | {result[f'heldout/{kind}/base']:.3f} | " + " | ".join(shares) + " |"
