"""A small corpus that a tiny model learns in seconds, and what training tests read from a run."""

from __future__ import annotations

import json
from pathlib import Path

from medusa_core.training.examples import END_OF_TEXT

SENTENCES = [
    f"The {animal} saw a {thing} and said hello to it."
    for animal in ("cat", "dog", "owl")
    for thing in ("tree", "ball", "boat", "star")
]


def write_corpus(folder: Path) -> Path:
    """A recipe over a few repeated sentences; the second kind has its own held-out file."""
    text = f"\n{END_OF_TEXT}\n".join(SENTENCES * 40)
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text(text + "\n", encoding="utf-8")
    sources = [
        {"kind": "story", "files": ["a.txt"], "weight": 0.75, "heldout_every": 10},
        {"kind": "chat", "files": ["b.txt"], "weight": 0.25, "heldout": ["c.txt"]},
    ]
    (folder / "recipe.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    return folder


def losses_of(folder: Path, name: str = "loss") -> dict[int, float]:
    """A logged metric by step."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["step"]: record[name] for record in map(json.loads, lines)}
