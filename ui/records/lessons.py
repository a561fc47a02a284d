"""What the tour tells beside the run on screen: its texts, and shipped measurements of the embedded model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medusa_core.experiments import store
from medusa_core.experiments.remarks import reason_against_paper
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from ui.records.examples import ASSETS, Recording
from ui.records.figures import Figures, PageFigures, source_words
from ui.records.words import as_data

FIRST_LANGUAGE = "en"
TIMES = ("nodes", "step_ms", "tokens_per_step", "propose", "verify", "accept", "commit")


def lesson_texts(assets: Path = ASSETS) -> dict[str, Any]:
    """Cards, glossary and words of the tour by language, the first one first."""
    files = sorted(
        (assets / "learn").glob("*.json"), key=lambda file: (file.stem != FIRST_LANGUAGE, file.stem)
    )
    return {file.stem: _read(file) for file in files}


def lesson_runs(recorded: Sequence[Recording]) -> list[Recording]:
    """What the tour tells beside its own run, the first: one of each other drafter, and one that draws."""

    def kind(one: Recording) -> tuple[str, bool]:
        config = one.trace["config"]
        return config["drafter"]["name"], config["temperature"] > 0

    own, _ = kind(recorded[0])
    found = {kind(one): one for one in reversed(recorded)}
    return [
        one for (drafter, draws), one in found.items() if one is not recorded[0] and (draws or drafter != own)
    ]


def lesson_records(head_decay: float, page: PageFigures, assets: Path = ASSETS) -> dict[str, Any]:
    """Accuracies and times of the embedded model's heads, and what three trainings did (paper, table 2).

    `head_decay` is λ of the training recipes: head k's loss counts λ^k.
    """
    model = _read(assets / "model" / "config.json")
    measured = _read(assets / "model" / "heads" / "accuracies.json")
    table = store.record("table2", folder=assets / store.FOLDER)
    trainings = [
        {
            "label": row.label,
            "loss": row.quality.mean,
            "speedup": row.speedup.median,
            "nodes": row.tree_nodes,
            "prompts": row.prompts,
        }
        for row in (table.rows if table else ())
        if row.quality and row.speedup
    ]
    return {
        "base": measured["base"],
        "hidden": model["hidden_size"],
        "accuracies": measured["accuracies"],
        "latency": [{name: row[name] for name in TIMES} for row in measured["latency"]],
        **lesson_times(page, measured["base"]),
        "trainings": trainings,
        "against": reason_against_paper(table, assets / store.FOLDER) if table else "",
        "head_decay": head_decay,
    }


def lesson_times(page: PageFigures, base: str) -> dict[str, Any]:
    """The times of steps that all tabs show, and where they were measured."""
    for figures in page.of_base(base):
        times = step_times(figures.record.rows)
        if len(times) > 1:
            latency = [{name: row[name] for name in TIMES} for row in times]
            return {
                "latency": latency,
                "source": as_data(source_words(figures)),
                "methods": _methods(figures),
            }
    return {"methods": []}


def _methods(figures: Figures) -> list[dict[str, Any]]:
    """What each drafter kept and cost over all kinds of text."""
    return [
        {
            "name": row.series,
            "nodes": row.tree_nodes,
            "tokens": row.tokens_per_step.mean,
            "overhead": row.overhead,
            "speedup": row.speedup.median,
        }
        for row in of_all_kinds(figures.record.rows)
        if row.phase_ms and row.speedup
    ]


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
