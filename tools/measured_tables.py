"""Write the tables of the store into README, docs and cards: `python -m tools.measured_tables [--check]`.

They stand between ``<!-- measured: NAME -->`` and ``<!-- /measured -->``. Each is a pure function of the
records. One line says what was not measured.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from medusa_core.cli.main import exit_code_of
from medusa_core.errors import MedusaError, counted, reason_of
from medusa_core.evaluation.other_work import is_busy
from medusa_core.experiments import store
from medusa_core.experiments.record import (
    ExperimentRecord,
    MachineRecord,
    ModelRecord,
    Row,
    Spread,
    nodes_words,
    number_words,
    read_record,
    spread_words,
)
from medusa_core.experiments.remarks import has_older_weights, reason_against_paper
from medusa_core.experiments.settings import PLAIN
from medusa_core.experiments.spec_bench import NAMES, STEP, by_series, of_all_kinds
from medusa_core.files import damaged_asset, project_folder, read_asset, read_text
from medusa_core.words import bytes_words, count_words, three_digits

BLOCK = re.compile(r"(<!-- measured: (.*?) -->\n).*?(<!-- /measured -->)", re.DOTALL)
_OPENING = "<!-- measured:"
_FILES = ("README.md", "docs/*.md", "assets/model/README.md", "assets/model/drafters/**/README.md")


def main(arguments: list[str] | None = None, root: Path | None = None) -> None:
    """Rewrite what differs and name it; with --check exit with 1 instead. Raises MedusaError."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.measured_tables", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where one differs")
    check, differs = parser.parse_args(arguments).check, False
    for record in store.MEASURED.glob("*/*.json"):  # the store's own list of kinds leaves out damaged ones
        read_record(record)
    root = root or project_folder()
    for file in files_with_tables(root):
        before = read_text(file)
        after = rendered(before)
        if after != before:
            differs = True
            if not check:
                file.write_text(after, encoding="utf-8", newline="")
            print(f"{file.relative_to(root)} {'differs' if check else 'written'}")
    if check and differs:
        raise SystemExit(1)


def files_with_tables(root: Path) -> list[Path]:
    """README, docs and cards."""
    return [file for pattern in _FILES for file in sorted(root.glob(pattern))]


def rendered(text: str) -> str:
    """The text with each of its tables made anew. Raises MedusaError for an unknown table."""
    if text.count(_OPENING) != len(BLOCK.findall(text)):
        raise MedusaError(f"a {_OPENING} … --> has no <!-- /measured --> behind it: close it")
    return BLOCK.sub(lambda found: found[1] + "\n".join([*table(found[2]), ""]) + found[3], text)


def table(name: str, folder: Path = store.MEASURED) -> list[str]:
    """The lines of a table by its name, which may have one argument: "drafter hydra"."""
    first, _, argument = name.partition(" ")
    if name in OF_ALL_MACHINES:
        return OF_ALL_MACHINES[name](folder)
    if first not in TABLES or bool(argument) != (first == DRAFTER):
        known = ", ".join([*TABLES, *OF_ALL_MACHINES])
        raise MedusaError(f"there is no table {name!r}: use one of {known} ({DRAFTER} with a method's name)")
    experiment, lines = TABLES[first]
    records = list(_records(experiment, folder))
    if first == "drafters":  # drafters compare where one machine has measured them all
        records.sort(key=lambda record: -len({row.series for row in record.rows}))
    older = [record for record in records if has_older_weights(record)]
    older.sort(key=lambda record: record.date, reverse=True)
    records = [record for record in records if not has_older_weights(record)] + older
    for record in records:
        if rows := [row for row in record.rows if not argument or row.series == argument]:
            break
    else:
        return [_missing(experiment)]
    reason = "" if first in _WITHOUT_ORDER else reason_against_paper(record)
    return [*([reason, ""] if reason else []), *lines(rows), "", _origin(record)]


def _records(experiment: str, folder: Path) -> Iterator[ExperimentRecord]:
    """The stated record, then those of other machines, which may have drafters that it lacks."""
    if (stated := store.stated_record(experiment, folder)) is not None:
        yield stated
        others = (store.record(experiment, kind.slug, folder) for kind in store.kinds(folder))
        yield from (record for record in others if record is not None)


def _headline(rows: list[Row]) -> list[str]:
    head = ["", "nodes", "tokens/s", "tokens per step", "ms a step", "over plain decoding", "over `generate`"]
    return _grid(
        [*head, "texts as plain decoding's"],
        (_cells(row) for row in of_all_kinds(rows) if row.series in NAMES),
    )


def _cells(row: Row) -> list[str]:
    return [
        NAMES.get(row.series, row.series),
        nodes_words(row),
        row.tokens_per_second.words(0),
        row.tokens_per_step.words(),
        f"{row.step_ms:.2f}",
        spread_words(row.speedup),
        spread_words(row.over_generate),
        "" if row.same_texts is None else f"{row.same_texts} of {row.prompts}",
    ]


def _machines(folder: Path) -> list[str]:
    """What to expect, a row for each kind of machine."""
    head = ["machine", "tokens/s: plain decoding", "Medusa", "`generate`", "Medusa over plain decoding"]
    head += ["over `generate`", "nodes", "tokens per step", "a step over a plain one", "dtype", "date"]
    lines = []
    for kind in store.kinds(folder):
        record = store.record(store.HEADLINE, kind.slug, folder)
        if record is None:
            lines.append([kind.title, "not measured yet", *[""] * (len(head) - 2)])
            continue
        rows = {row.series: row for row in of_all_kinds(record.rows)}
        compared = [rows.get(name) for name in ("none", "medusa", "hf")]
        rates = ["" if row is None else row.tokens_per_second.words(0) for row in compared]
        medusa = rows["medusa"]
        ratios = [spread_words(medusa.speedup), spread_words(medusa.over_generate)]
        kept = [nodes_words(medusa), medusa.tokens_per_step.words(), number_words(medusa.overhead)]
        lines.append([kind.title, *rates, *ratios, *kept, record.model.dtype, _date(record)])
    adds = f"`python -m medusa_core reproduce {store.HEADLINE} --store` adds yours."
    return [*_grid(head, lines), "", adds] if lines else [_missing(store.HEADLINE)]


def _gpus(folder: Path) -> list[str]:
    """What single runs of ``bench`` measured: a table for each machine."""
    head = ["model", "captured", "method", "nodes", "tokens per step", "ms a step"]
    head += ["over a plain step", "tokens/s", "over plain decoding", "over the limit", "peak memory"]
    lines: list[str] = []
    for file in sorted(folder.glob(_BENCH)):
        runs = read_asset(file)
        try:
            table = _grid(head, (cells for run in runs for cells in _bench_cells(run)))
            lines += ["", *table, "", *_bench_origin(runs)]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged_asset(file, f"no run of bench: {reason_of(error)}") from error
    return lines[1:] or ["Not measured yet on a GPU."]


def _bench_cells(run: dict[str, Any]) -> Iterator[list[str]]:
    """The rows of one run. Those of other programs have no step of ours, and are never captured."""
    record = run["record"]
    model = ModelRecord(**record["model"])
    methods = record.get("methods", {})
    rows = [{**row, "method": name, "nodes": row.get("tree_nodes")} for name, row in methods.items()]
    rows = rows or record["points"]
    plain = next((row["step_ms"] for row in rows if row["method"] == "none"), None)
    for row in rows:
        step, nodes, limit = (row.get(name) for name in ("step_ms", "nodes", "over_limit"))
        overhead = row.get("overhead", step / plain if step and plain else None)
        yield [
            f"{model.base}, {count_words(model.parameters)}",
            "" if step is None else next(cell for words, cell in _CAPTURED.items() if words in model.forward),
            NAMES.get(row["method"], row["method"]),
            "" if nodes is None else f"{nodes:g}",
            number_words(row.get("tokens_per_step")),
            number_words(step),
            number_words(overhead),
            _range_words(row, "tokens_per_second", 0),
            _range_words(row, "speedup"),
            "" if limit is None else three_digits(limit),
            bytes_words(run["peak_gib"] * 2**30),
        ]


def _range_words(row: dict[str, Any], name: str, digits: int = 2) -> str:
    """A median of ``bench`` with its range, empty where it has none."""
    if row.get(name) is None:
        return ""
    low, high = row[f"{name}_range"]
    return Spread(median=row[name], low=low, high=high).words(digits)


def _bench_origin(runs: list[dict[str, Any]]) -> list[str]:
    """``_origin`` for the runs of one machine: each value once, then a command a line."""
    machines = [MachineRecord(**run["record"]["machine"]) for run in runs]
    facts = [
        *(store.title_of(machine) for machine in machines),
        *(run["record"]["model"]["dtype"] for run in runs),
        *(f"torch {machine.torch}" for machine in machines),
        *(_day(run["date"]) for run in runs),
    ]
    commands = [
        ", ".join([f"- `{run['command']}`", *_busy(machine)])
        for run, machine in zip(runs, machines, strict=True)
    ]
    return [f"{', '.join(dict.fromkeys(facts))}, in the order of the rows:", "", *commands]


def _steps(rows: list[Row]) -> list[str]:
    """Milliseconds of a step by nodes."""
    steps = [row for row in rows if row.series == STEP]
    if not steps:
        return ["Not measured yet on this machine."]
    return _grid(
        ["nodes", *(nodes_words(row) for row in steps)],
        [
            ["ms a step", *(f"{row.step_ms:.2f}" for row in steps)],
            ["over a plain step", *(number_words(row.overhead) for row in steps)],
            ["tokens per step", *(f"{row.tokens_per_step.mean:.2f}" for row in steps)],
        ],
    )


def _kinds_of_text(rows: list[Row]) -> list[str]:
    head = ["text", "prompts", "tokens per step", "a step over a plain one", "speedup over plain decoding"]
    lines = []
    for row in (row for row in rows if row.series != PLAIN):
        figures = [row.tokens_per_step.words(), number_words(row.overhead), spread_words(row.speedup)]
        lines.append([row.label, str(row.prompts), *figures])
    return _grid(head, lines)


def _drafters(rows: list[Row]) -> list[str]:
    """A row for each method, the fastest over all kinds first, with the kinds of text side by side."""
    rows = [row for row in rows if row.series != STEP]
    kinds = ", ".join(dict.fromkeys(row.label for row in rows))
    lines = []
    for found in sorted(by_series(rows).values(), key=lambda found: -found[-1].tokens_per_second.median):
        of_all = found[-1]
        kept = ", ".join(f"{row.tokens_per_step.mean:.2f}" for row in found)
        speedups = ", ".join(number_words(row.speedup.median if row.speedup else None) for row in found)
        lines.append([f"`{of_all.series}`", nodes_words(of_all), kept, f"{of_all.step_ms:.2f}", speedups])
    return _grid(["method", "nodes", f"tokens per step: {kinds}", "ms a step", f"speedup: {kinds}"], lines)


def _settings(rows: list[Row]) -> list[str]:
    """A row for each row of the record, by its label and series."""
    lines = []
    for row in rows:
        kept, speedup = row.tokens_per_step.words(), spread_words(row.speedup)
        lines.append([row.name, nodes_words(row), kept, f"{row.step_ms:.2f}", speedup])
    return _grid(["", "nodes", "tokens per step", "ms a step", "speedup over plain decoding"], lines)


def _of_one_drafter(rows: list[Row]) -> list[str]:
    return _settings([row.model_copy(update={"series": row.label}) for row in rows])


def _layers(rows: list[Row]) -> list[str]:
    """A row for each trained layer: what it keeps, and how often its first guess in each step is right."""
    layers = [(row, row.right_by_step) for row in rows if row.right_by_step]
    steps = max(len(shares) for _, shares in layers)
    return _grid(
        ["", "tokens per step", *(f"step {step}" for step in range(1, steps + 1))],
        ([row.label, row.tokens_per_step.words(), *map("{:.2f}".format, shares)] for row, shares in layers),
    )


def _long_texts(rows: list[Row]) -> list[str]:
    """The lengths side by side; for plain decoding only the time of a step, as its other figures are 1."""
    lines = []
    for name, found in by_series(rows).items():
        if not name.startswith(PLAIN):
            lines.append([f"{name}: tokens per step", *(f"{row.tokens_per_step.mean:.2f}" for row in found)])
            lines.append(["speedup over plain decoding", *(spread_words(row.speedup) for row in found)])
        lines.append([f"{name}: ms a step", *(f"{row.step_ms:.2f}" for row in found)])
    return _grid(["", *dict.fromkeys(row.label for row in rows)], lines)


def _grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """A table without the columns that are empty."""
    lines = list(lines)
    shown = [place for place in range(len(head)) if any(line[place] for line in lines)]
    rows = (head, ["---"] * len(head), *lines)
    return [f"| {' | '.join(cells[place] for place in shown)} |" for cells in rows]


def _origin(record: ExperimentRecord) -> str:
    """Where, when and by which command a record was made."""
    machine = record.machine
    facts = [store.title_of(machine), counted(machine.threads, "thread"), record.model.dtype, _date(record)]
    return f"{', '.join([*facts, *_busy(machine)])}: `{record.command}`"


def _busy(machine: MachineRecord) -> list[str]:
    """A note that other programs ran meanwhile, where they did."""
    if not is_busy(machine.model_dump()):
        return []
    return [f"while other programs used {machine.other_cores_busy:.1f} cores"]


def _date(record: ExperimentRecord) -> str:
    engine = ", with an older engine" if record.is_outdated else ""
    return f"{_day(record.date)}{engine}{', with older weights' if has_older_weights(record) else ''}"


def _day(date: str) -> str:
    day = datetime.date.fromisoformat(date)
    return f"{day.day} {day:%B %Y}"


def _missing(experiment: str) -> str:
    return f"Not measured yet: `python -m medusa_core reproduce {experiment} --store` does it."


_BENCH = "*/bench.jsonl"  # below the store: runs of `bench --json`, a line each
# Whether steps are captured, by words in the description of the forward.
_CAPTURED = {"in part compiled": "yes, compiled", "captured as CUDA graphs": "yes", "": "no"}
DRAFTER = "drafter"
_WITHOUT_ORDER = ("headline", "steps")  # they compare no drafters, so no order can contradict the paper's
# By name: the experiment, and the function that turns its rows into lines.
TABLES: dict[str, tuple[str, Callable[[list[Row]], list[str]]]] = {
    "headline": (store.HEADLINE, _headline),
    "steps": (store.HEADLINE, _steps),
    "kinds-of-text": ("figure3", _kinds_of_text),
    "drafters": (store.HEADLINE, _drafters),
    DRAFTER: (store.HEADLINE, _of_one_drafter),
    "without-loss": ("eagle3-table1", _settings),
    "layers": ("eagle3-training", _layers),
    "long-texts": ("tokenswift", _long_texts),
}
OF_ALL_MACHINES: dict[str, Callable[[Path], list[str]]] = {"machines": _machines, "gpu": _gpus}


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
