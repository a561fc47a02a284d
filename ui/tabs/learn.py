"""The Learn tab: cards over recorded runs, and the link to it at the top of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from medusa_core.experiments import store
from medusa_core.experiments.remarks import reason_against_paper
from medusa_core.experiments.spec_bench import of_all_kinds, step_times
from medusa_core.files import read_asset
from medusa_core.training.config import Medusa1Config
from ui.components.events import AT_ONCE, QUIET
from ui.components.views import ANSWERED, ASKED, LearnView, learn_content
from ui.records.examples import ASSETS, Recording
from ui.records.figures import Figures, PageFigures, origin_words, source_words
from ui.records.words import as_data
from ui.runs.session import Session
from ui.tabs.learn_computed import answered, computed_records

TAB = "learn-tab"
# The tab is mounted when it is first opened; its first card then takes the focus, so that keys work at once.
OPEN = """() => {
  document.getElementById(TAB + "-button")?.click();
  const start = (frames) => {
    const title = document.querySelector(".learn-title");
    if (title && title.offsetParent) title.focus({ preventScroll: true });
    else if (frames) requestAnimationFrame(() => start(frames - 1));
  };
  start(300);
}"""
FIRST_LANGUAGE = "en"
TIMES = ("nodes", "step_ms", "tokens_per_step", "propose", "verify", "accept", "commit")


def link() -> None:
    """The button on the first screen that takes a newcomer to the tab, without the server."""
    gr.Button("Start the tour", elem_id="start-tour", size="sm").click(
        None, None, None, js=OPEN.replace("TAB", json.dumps(TAB))
    )


def build(session: Session, figures: gr.State, recorded: list[Recording]) -> None:
    """Lay the tab out over the first recorded run. Where there is none, it says so."""
    if not recorded:
        gr.HTML("<p class='note'>There is no recorded run to show the tour with.</p>")
        return
    trace, runs = recorded[0].trace, lesson_runs(recorded)

    def content(page: PageFigures) -> str:
        records = lesson_records(page) | computed_records(page)
        return learn_content(lesson_texts(), records, trace, runs)

    view = LearnView(content(session.figures.begin()), elem_id="learn-view")
    figures.change(content, figures, view, **QUIET)
    asked, answer = gr.Textbox(visible="hidden"), gr.Textbox(visible="hidden")
    view.ask(
        lambda text, page: answered(text, page.whole), [asked, figures], answer,
        js=ASKED, trigger_mode="always_last", **AT_ONCE,
    ).then(None, answer, None, js=ANSWERED)  # fmt: skip


def lesson_texts() -> dict[str, Any]:
    """Cards, glossary and words of the tour by language, the first one first."""
    files = sorted(
        (ASSETS / "learn").glob("*.json"), key=lambda file: (file.stem != FIRST_LANGUAGE, file.stem)
    )
    return {file.stem: read_asset(file) for file in files}


def lesson_runs(recorded: Sequence[Recording]) -> list[Recording]:
    """The tour's runs besides its own, the first: one of each other drafter, and one with sampling."""

    def kind(one: Recording) -> tuple[str, bool]:
        config = one.trace["config"]
        return config["drafter"]["name"], config["temperature"] > 0

    own, _ = kind(recorded[0])
    found = {kind(one): one for one in reversed(recorded)}
    return [
        one for (drafter, draws), one in found.items() if one is not recorded[0] and (draws or drafter != own)
    ]


def lesson_records(page: PageFigures, assets: Path = ASSETS) -> dict[str, Any]:
    """Accuracies and times of the embedded model's heads, and what three trainings did (paper, table 2)."""
    model = read_asset(assets / "model" / "config.json")
    measured = read_asset(assets / "model" / "heads" / "accuracies.json")
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
        "trained": as_data(origin_words(table)) if table else "",
        "against": reason_against_paper(table, assets / store.FOLDER) if table else "",
        "head_decay": Medusa1Config.head_decay,
    }


def lesson_times(page: PageFigures, base: str) -> dict[str, Any]:
    """The times of steps that all tabs show, and where they were measured."""
    for figures in page.of_base(base):
        times = step_times(figures.record.rows)
        if len(times) > 1 and page.is_whole(figures):
            return {
                "latency": times,
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
