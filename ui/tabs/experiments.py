"""The Experiments tab: what papers measured, measured again here, next to their own figures.

Reads stored records and draws them; needs no engine, and no choice in it computes anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError, counted
from medusa_core.experiments import experiment_names, store
from medusa_core.experiments.record import ExperimentRecord, PaperFacts, paper_facts, row_cells
from medusa_core.experiments.remarks import further_remarks, reason_against_paper
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.components.events import DRAWS, page_under_way
from ui.components.figure_table import grid, html_part, spans, wrap
from ui.figures.experiments import charts
from ui.figures.method_speeds import PEERS, series_title

COMPARE = "So compare the direction and the order, not the numbers one by one."
MOST_CHARTS = 2
MOST_ROWS = 12  # rows of a table that is not folded
# Notes that list figures by method or kind are shown, and translated, part by part.
LISTS = re.compile(
    r"(Fastest by kind|Texts identical to|Tokens per step over|EAGLE-3's tokens per step over|"
    r"Held-out loss on|T = |.*: best with)"
)
ESTIMATE = (
    "The estimate is the tokens per step that the heads' measured accuracies promise, as if each head were "
    "right independently of the others."
)
PAPER_COLUMNS = (
    ("speedup", "speedup", ".2f"), ("tokens per step", "tokens_per_step", ".2f"),
    ("overhead", "overhead", ".2f"), ("α", "alpha", ".2f"), ("quality", "quality", "g"),
)  # fmt: skip
PIECES = re.compile(r"([:;,] )")
IDENTICAL = re.compile(r"(Texts identical to plain decoding's, of (\d+)): (.+)\.")
COUNT = re.compile(r"(.+?) (\d+)(?:, |$)")  # a name, which may hold a comma, and its number


SECTIONS = {  # name in the menu, by paper, and what it shows
    "spec-bench": (
        "Spec-Bench: every drafter",
        "Who drafts best, and for which kind of text? Heads guess any text, copying earlier text pays "
        "where a text repeats itself; elsewhere it may cost more than it gains.",
    ),
    "figure3": (
        "Medusa, figure 3: kinds of text",
        "Does every kind of text gain alike? A set phrase is guessed several tokens ahead, a surprise is "
        "not.",
    ),
    "figure4": (
        "Medusa, figure 4: sparse against dense trees",
        "Which guesses should the tree combine, and how many? An optimised tree is grown from the measured "
        "accuracy of each guess; a cartesian one combines the first guesses of each head evenly.",
    ),
    "figure5": (
        "Medusa, figure 5: thresholds of typical acceptance",
        "What does it cost to accept what is plausible instead of what is exact? The lower the threshold ε, "
        "the more guesses pass.",
    ),
    "figure7": (
        "Medusa, figure 7: draft models by γ",
        "How far should a small model run ahead? Each further token costs one more pass of it, and counts "
        "only where all tokens before it were right.",
    ),
    "table2": (
        "Medusa, table 2: ways to train",
        "Can the model itself be trained with its heads? Medusa-1 leaves it as it is, Medusa-2 trains both "
        "with care, direct fine-tuning trains both without.",
    ),
    "table3": (
        "Medusa, table 3: what each technique adds",
        "Which part of the gain comes from where? First heads with one guess each, then a tree of guesses, a "
        "tree chosen by measured accuracies, and heads trained together with the model. The trees are small, "
        "as the column “nodes” says: for so small a model, larger ones would cost more than they gain.",
    ),
    "figure21": (
        "Medusa, figure 21, simulated: candidates",
        "How much could Medusa gain, by arithmetic alone? Reading the weights costs the same for one "
        "candidate and for many; arithmetic does not.",
    ),
    "figure22": (
        "Medusa, figure 22, simulated: batches",
        "Does Medusa pay when many texts are written at once? A batch fills the arithmetic units by itself.",
    ),
    "figure23": (
        "Medusa, figure 23, simulated: lengths",
        "Does Medusa pay after a long text? Attention takes more of a step, and gains less.",
    ),
    "eagle3-table1": (
        "EAGLE-3, table 1: without loss, at two temperatures",
        "Which drafter keeps the most tokens when every token must be one the model would have drawn? At "
        "temperature 1 the model itself is less sure, so fewer guesses pass. A dynamic tree holds in each "
        "step the nodes that Medusa's heads find likeliest; the heads' other trees keep one shape. "
        "Where a name states no nodes, it is the tree that came with the weights.",
    ),
    "eagle3-training": (
        "EAGLE-3, figures 1 and 7, table 2: how it is trained",
        "What makes a draft layer guess well? More text, features of three layers instead of the last, no "
        "features as a goal, and steps in training that read its own output as the steps of drafting do.",
    ),
    "tokenswift": (
        "TokenSwift: long texts",
        "What happens to the speed as a text grows? Each step reads the whole cache, so a plain step takes "
        "longer and longer; the more tokens a step keeps, the less often the cache is read.",
    ),
    "grouped-heads": (
        "GQA: shared key-value heads",
        "Can a trained model's heads share keys and values? Pooled: each group of heads gets the mean of its "
        "key and value weights, so the cache shrinks and the loss rises. Trained on: a short training "
        "afterwards recovers some of that.",
    ),
}


def build(assets: Path) -> None:
    """Lay the tab out and connect it; ``assets`` holds the folder of stored records."""
    names = list(dict.fromkeys([*SECTIONS, *experiment_names()]))
    dark = gr.Checkbox(visible=False)
    first = load_section(assets, names[0])
    with gr.Row():
        choice = gr.Dropdown(
            [(SECTIONS[name][0] if name in SECTIONS else name, name) for name in names],
            value=names[0], label="Experiment", elem_id="experiment-choice",
            filterable=False, min_width=320,
        )  # fmt: skip
        with gr.Column(scale=2, min_width=320):
            text = html_part(first.introduction, "experiment-text")
    with gr.Row(elem_id="experiment-charts"):
        plots = [gr.Plot(min_width=480, elem_id=f"experiment-chart-{i}") for i in range(MOST_CHARTS)]
    details = html_part(first.details, "experiment-details")

    def show(name: str, dark: bool) -> tuple[Any, ...]:
        section = load_section(assets, name)
        return section.introduction, section.details, *section.plots(dark)

    # The charts come after the first paint.
    gr.on([page_under_way().load, choice.change], show, [choice, dark], [text, details, *plots], **DRAWS)


@dataclass(frozen=True)
class Shown:
    """One experiment as the page shows it: markup above and below the charts, and their record."""

    introduction: str
    details: str
    record: ExperimentRecord | None

    def plots(self, dark: bool) -> list[gr.Plot]:
        """Updates of the plots; those without a chart are hidden."""
        found = charts(self.record, dark) if self.record else []
        updates = [gr.Plot(figure, label=title, visible=True) for title, figure in found]
        return updates + [gr.Plot(visible=False)] * (MOST_CHARTS - len(updates))


def load_section(assets: Path, name: str) -> Shown:
    """An experiment with its stored record; without one, or with a bad one, a sentence says what to do."""
    facts = paper_facts(name)
    command = f"python -m medusa_core reproduce {name} --store"
    try:
        record = store.record(name, folder=assets / store.FOLDER)
        problem = f"No result of this experiment is stored yet. This command measures it: {_code(command)}"
    except MedusaError as error:
        record = None
        problem = f"{html.escape(str(error))}. This command measures it again: {_code(command)}"
    shows = f"<p><span>{html.escape(SECTIONS[name][1])}</span>" if name in SECTIONS else "<p>"
    if record is None:
        return Shown(wrap(f"{shows}</p><p role='status'><strong>{problem}</strong></p>"), _paper(facts), None)
    folder = assets / store.FOLDER
    advice = "" if record.simulated else reason_against_paper(record, folder) or COMPARE
    introduction = wrap(f"{shows} {_difference(record)} <span>{html.escape(advice)}</span></p>")
    notes = _list([*_notes(record), *further_remarks(record, folder)])
    return Shown(introduction, wrap(_table(record) + notes) + _paper(facts) + _origin(record), record)


def _difference(record: ExperimentRecord) -> str:
    """How ours differs from the paper's setting, as markup."""
    model, machine = record.model, record.machine
    if record.simulated:
        return spans([f"Formulas compute it for {model.name} on one {machine.processor}; nothing was run."])
    where = f"a CPU with {counted(machine.threads, 'thread')}" if model.device == "cpu" else machine.processor
    millions = model.parameters / 1e6
    size = f"{millions:.0f} million" if millions >= 1 else f"{model.parameters:,}"
    ours = f"Here it is a model of {size} parameters on {where}."
    return spans([ours, "In the paper:", f"{record.paper.setting}."])


def _table(record: ExperimentRecord) -> str:
    """A table of the charts' numbers, and more."""
    if record.simulated:
        return _folded("Computed here", grid("Sizes count the root.", _cells(record)), len(record.rows))
    caption = ["± one standard error over prompts; in brackets the lowest and the highest round."]
    if any(row.expected_tokens_per_step for row in record.rows):
        caption.append(ESTIMATE)
    if record.quality:
        caption += ["Quality:", f"{record.quality}."]
    return _folded("Measured with this program", grid(caption, _cells(record)), len(record.rows))


def _cells(record: ExperimentRecord) -> list[dict[str, str]]:
    """The rows of the table, named by titles instead of keys."""
    rows = [row_cells(row) for row in record.rows]
    return [row | {"setting": ", ".join(map(series_title, row["setting"].split(", ")))} for row in rows]


def _folded(title: str, table: str, rows: int) -> str:
    """A table under its title, which folds it away where it is long."""
    if rows <= MOST_ROWS:
        return f"<h3>{title}</h3>{table}"
    return f"<details><summary><b>{title}</b> (<span>{rows} rows</span>)</summary>{table}</details>"


def _paper(facts: PaperFacts) -> str:
    """The paper's own figures, and what it says in words where it prints none."""
    caption = [f"{facts.setting}.", *(["Quality:", f"{facts.quality}."] if facts.quality else [])]
    rows = [
        {"setting": row.label} | {name: _number(getattr(row, key), form) for name, key, form in PAPER_COLUMNS}
        for row in facts.rows
    ]
    table = grid(caption, rows) if rows else f"<p class='quiet'>{spans(caption)}</p>"
    title = f"<h3>{spans(['In the paper:', facts.reference])}</h3>"
    return wrap(title + table + _list(facts.claims))


def _origin(record: ExperimentRecord) -> str:
    """Command, machine and date."""
    model, machine = record.model, record.machine
    facts = (
        f"{model.name}, {model.dtype} · {machine.processor} · {record.date}"
        if record.simulated
        else f"{model.name}, {model.dtype}, {model.device} · {machine.processor} · "
        f"{counted(machine.threads, 'thread')} · "
        f"torch {machine.torch}, Python {machine.python} · {record.date}"
        f"{' · with an older engine' if record.is_outdated else ''}"
    )
    made = spans(facts.split(" · "), " · ")
    return wrap(f"<h3>How it was made</h3><p class='quiet facts'>{_code(record.command)}<br>{made}</p>")


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{_note(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _note(sentence: str) -> str:
    """A note as markup: a list of figures in parts, with titles instead of keys."""
    if not LISTS.match(sentence):
        return html.escape(sentence)
    pieces = PIECES.split(_counted(sentence).rstrip("."))
    said = [piece if PIECES.fullmatch(piece) else _named(piece) for piece in pieces]
    return "".join(said) + "."


def _notes(record: ExperimentRecord) -> list[str]:
    """The record's notes; that on identical texts names transformers' ways too, which have rows of them."""
    of_peers = [
        row for row in of_all_kinds(record.rows) if row.series in PEERS and row.same_texts is not None
    ]
    more = "".join(f", {row.series} {row.same_texts}" for row in of_peers)
    return [f"{note[:-1]}{more}." if IDENTICAL.fullmatch(note) else note for note in record.notes]


def _counted(sentence: str) -> str:
    """The note without the names of the methods whose texts are all identical: they would fill the page."""
    found = IDENTICAL.fullmatch(sentence)
    if found is None:
        return sentence
    start, total, listed = found.groups()
    counts = COUNT.findall(listed)
    others = [f"{name} {count}" for name, count in counts if count != total]
    same = len(counts) - len(others)
    if same < 2:
        return sentence
    return f"{start}: {', '.join([*others, f'{total} with each of {same} methods'])}."


def _named(piece: str) -> str:
    """A part of a list: a method's key, alone or followed by its figure, or words."""
    first, space, rest = piece.partition(" ")
    return spans(
        [series_title(first), rest] if space and series_title(first) != first else [series_title(piece)]
    )


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
