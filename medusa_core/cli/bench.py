"""What ``bench`` does. Its flags are in ``commands/bench``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from rich.cells import cell_len
from rich.table import Table

from medusa_core.cli import bench_sweep
from medusa_core.cli.flags import COLUMNS, read_run_settings, read_settings
from medusa_core.cli.load import load_for_runs
from medusa_core.cli.tables import NONE, console, headlines, new_table, run_bar
from medusa_core.config import MOST_ROUNDS, TRUNCATING, LoadConfig
from medusa_core.drafters import PLUS, method_names, methods_in_words
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, close_name, counted
from medusa_core.evaluation.bench import ALL_PEERS, BASELINE, TRANSFORMERS, run_bench
from medusa_core.evaluation.other_work import busy_words
from medusa_core.evaluation.prompts import chosen_kinds, places_of
from medusa_core.evaluation.step_times import auto_tree_words
from medusa_core.words import bytes_words, flops_words, rate_words

_NAME_WIDTH = 15  # columns for a method's name, with room left for the widest figures
_KIND_WIDTH = 6  # columns for a figure by kind of text
ALL = "all"  # in --methods
USUAL = "none,medusa,hf"  # without --methods
KIND_FIGURES = {
    f"speedup over {BASELINE}": "speedup",
    "tokens per step": "tokens_per_step",
    "overhead": "overhead",
}


def run(args: argparse.Namespace) -> None:
    """Measure and print two tables. Raises MedusaError for bad input."""
    methods = _methods(USUAL if args.methods is None else args.methods)
    if not 1 <= args.runs <= MOST_ROUNDS:
        raise MedusaError(f"--runs is {args.runs}: give 1 to {MOST_ROUNDS} rounds")
    if {args.sweep, args.batch, args.shape, args.values, args.acceptance_from} != {None}:
        bench_sweep.run(args)
        return
    config = read_run_settings(args)
    wanted = method_names() if ALL in methods else methods
    own = [config.changed(method=name) for name in wanted if name not in ALL_PEERS]
    engine = load_for_runs(read_settings(LoadConfig, args), own, all_drafters=ALL in methods)
    if ALL in methods:
        methods = _all_methods(engine, methods)
    kinds = chosen_kinds(args, engine)
    prompts = [prompt for of_kind in kinds.values() for prompt in of_kind]
    with run_bar() as progress:
        record = run_bench(engine, prompts, methods, config, args.runs, progress, places_of(kinds))
    _print_tables(record)
    measured = [run for run in own if run.method in methods]
    for words in filter(None, dict.fromkeys(auto_tree_words(engine, run) for run in measured)):
        print(words)
    if args.json:
        print(json.dumps(record, ensure_ascii=False))


def _methods(text: str) -> list[str]:
    """The names in ``--methods``. Raises MedusaError."""
    methods = [name.strip() for name in text.split(",")]
    names = (ALL, *ALL_PEERS, *method_names())
    unknown = [name for name in methods if name not in names]
    if unknown or len(set(methods)) != len(methods):
        if close := next(filter(None, (close_name(name, names) for name in unknown)), ""):
            raise MedusaError(f"--methods is {text!r:.60}: did you mean {close}?")
        known = f"{', '.join(ALL_PEERS)}, {methods_in_words()}"
        raise MedusaError(f"--methods is {text!r:.60}: use {ALL}, or each at most once of {known}")
    return methods


def _all_methods(engine: Engine, named: list[str]) -> list[str]:
    """The engine's own methods and the peers that need no compiler, then whatever else was named."""
    peers = [name for name, peer in ALL_PEERS.items() if not peer.compiles]
    found = [BASELINE, *engine.methods(), *peers, *named]
    return [name for name in dict.fromkeys(found) if name != ALL]


def _print_tables(record: dict) -> None:
    settings = record["settings"]
    runs = f"{counted(settings['prompts'], 'prompt')} × {counted(settings['runs'], 'run')}"
    out = console()
    out.print(*headlines(record, runs), sep="\n")
    out.print(_speed_table(record["methods"]))
    if any("phase_ms" in m for m in record["methods"].values()):
        out.print(_step_table(record["methods"]))
    if len(record["kinds"]) > 1:
        for title, key in KIND_FIGURES.items():
            if any(key in m for m in record["methods"].values()):
                for kinds in _in_width(list(record["kinds"])):
                    out.print(_kind_table(record, title, key, kinds))
        if len(record["methods"]) > 1:
            out.print(_fastest(record["kinds"]))
    out.print(*_notes(record), sep="\n")


def _speed_table(methods: dict) -> Table:
    bases = {BASELINE: "speedup", TRANSFORMERS: f"speedup_over_{TRANSFORMERS}"}
    shown = {name: key for name, key in bases.items() if name in methods}
    headers = ["tokens\nper second", "tokens\nper step"]
    headers += [f"speedup over\n{name}" for name in shown]
    if BASELINE in methods:
        headers.append(f"output as\n{BASELINE}'s")
    table = _table(headers)
    for name, m in methods.items():
        table.add_row(
            _shown(name),
            _spread(m, "tokens_per_second", 0 if m["tokens_per_second"] >= 100 else 1),
            f"{m['tokens_per_step']:.2f}",
            *(_spread(m, key, 2) for key in shown.values()),
            *([m["identical_outputs"]] if BASELINE in methods else []),
        )
    return table


def _step_table(methods: dict) -> Table:
    phases = next(m["phase_ms"] for m in methods.values() if "phase_ms" in m)
    table = _table(["nodes", *phases, "a step", "overhead", "over\nlimit"])
    table.title = "milliseconds of a step"
    for name, m in methods.items():
        if "phase_ms" not in m:
            continue
        table.add_row(
            _shown(name),
            str(m["tree_nodes"]),
            *map(_milliseconds, m["phase_ms"].values()),
            _milliseconds(m["step_ms"]),
            f"{m['overhead']:.2f}" if "overhead" in m else NONE,
            f"{m['over_limit']:.1f}" if m.get("over_limit") else NONE,
        )
    return table


def _kind_table(record: dict, title: str, key: str, kinds: list[str]) -> Table:
    """One figure of every method, by kind of text and over all."""
    table = _table([*kinds, "all"])
    table.title = f"{title}, by kind of text"
    for name, whole in record["methods"].items():
        figures = [record["kinds"][kind][name] for kind in kinds] + [whole]
        if key in whole:
            table.add_row(_shown(name), *(f"{one[key]:.2f}" for one in figures))
    return table


def _in_width(kinds: list[str]) -> Iterator[list[str]]:
    """The kinds, as many in a table as fit beside the names and the last column."""
    room = COLUMNS - _NAME_WIDTH - _KIND_WIDTH
    part: list[str] = []
    for kind in kinds:
        if part and sum(max(cell_len(one), _KIND_WIDTH) + 2 for one in [*part, kind]) > room:
            yield part
            part = []
        part.append(kind)
    yield part


def _fastest(kinds: dict) -> str:
    named = []
    for kind, methods in kinds.items():
        best = max(methods, key=lambda name: methods[name]["tokens_per_second"])
        named.append(f"{kind} {best} ({methods[best]['tokens_per_second']:,.0f} tokens/s)")
    return f"Fastest: {', '.join(named)}."


def _table(headers: list[str]) -> Table:
    table = new_table(pad_edge=False, title_justify="left", title_style="")
    table.add_column("method", overflow="fold")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _shown(name: str) -> str:
    """The name of a method, a long one of two drafters in two lines."""
    return name if len(name) <= _NAME_WIDTH else name.replace(PLUS, f"{PLUS}\n")


def _spread(figures: dict, key: str, decimals: int) -> str:
    """A median, and below it the lowest and the highest round."""
    low, high = figures[f"{key}_range"]
    return f"{figures[key]:.{decimals}f}\n{low:.{decimals}f}–{high:.{decimals}f}"


def _milliseconds(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _notes(record: dict) -> list[str]:
    """Notes that the reader of the tables needs."""
    settings = record["settings"]
    temperature = settings["temperature"]
    lines = ["Medians of rounds and their ratios (lowest–highest); tokens/s count the reading of the prompt."]
    lines += limit_words(record["methods"])
    if peers := [name for name in record["methods"] if name in ALL_PEERS]:
        lines += [f"{name}: {ALL_PEERS[name].help}." for name in peers]
        lines.append("They run on the same weights, with the same prompts, budget and reasons to end.")
    if temperature > 0:
        lines.append(f"Each method draws for itself at temperature {temperature:g}: outputs may differ.")
    if "penalty" in settings:
        window = counted(settings["penalty_window"], "token")
        lines.append(f"With a penalty of {settings['penalty']:g} on the last {window}.")
    if left := [f"{name.replace('_', '-')} {settings[name]:g}" for name in TRUNCATING if name in settings]:
        lines.append(f"With {' and '.join(left)}.")
    reasons: dict[str, list[str]] = {}
    for name, reason in record["left_out"].items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        lines.append(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} left out: {reason}.")
    return [*lines, *filter(None, [busy_words(record["machine"])])]


def limit_words(figures: dict) -> list[str]:
    """How the least time of a step was computed, in words; empty where it was not."""
    limits = next((m["limits"] for m in figures.values() if "limits" in m), None)
    if limits is None:
        return []
    return [
        f"Over limit: a step over the time that its bytes take at {rate_words(limits['bandwidth'])}, or its "
        f"operations at {flops_words(limits['peak'])}/s, both measured here; a plain step reads "
        f"{bytes_words(limits['bytes'])}."
    ]
