"""What ``bench --sweep``, ``--batch`` and ``--shape`` do: time a step while one quantity varies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from medusa_core.cli.flags import MOST_TEXTS, read_run_settings, read_settings
from medusa_core.cli.load import load_for_runs
from medusa_core.cli.tables import NONE, console, headlines, new_table, run_bar
from medusa_core.config import LoadConfig, whole_numbers
from medusa_core.drafters import method_names, require_weights
from medusa_core.drafters.medusa import NAME
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.other_work import OtherWork, busy_words
from medusa_core.evaluation.prompts import chosen_prompts
from medusa_core.evaluation.random_model import random_engine, random_prompts
from medusa_core.evaluation.sweep import (
    BATCH,
    DTYPE,
    NODES,
    PLAIN,
    VALUES,
    Case,
    cases_of,
    filling,
    fitting,
    measure_cases,
    simulated,
    sweep_record,
    swept_dtypes,
)
from medusa_core.hardware.shapes import known_shapes
from medusa_core.loading.devices import place
from medusa_core.trees.search import read_accuracies
from medusa_core.trees.tree import MAX_NODES

_SHAPE_NODES = (1, 16, 32, 64)
_MOST = {NODES: MAX_NODES, BATCH: MOST_TEXTS}
_SHAPE_PROMPTS = 4


def run(args: argparse.Namespace) -> None:
    sweep = _sweep(args)
    if args.acceptance_from is not None and args.shape is None:
        raise MedusaError("--acceptance-from simulates what random weights cannot show: give --shape too")
    named = f"{PLAIN},{NAME}" if args.methods is None else args.methods
    methods = [name.strip() for name in named.split(",")]
    own = [name for name in methods if name in method_names()]
    if not own:
        raise MedusaError(f"--methods is {args.methods!r}: a sweep measures our own, such as none,medusa")
    if sweep == NODES and {*own, PLAIN} != {PLAIN, NAME}:
        raise MedusaError(
            f"--methods is {args.methods!r}: --sweep nodes measures Medusa's trees beside plain "
            "decoding; leave --methods out, or use --sweep context, batch or dtype"
        )
    accuracies = None if args.acceptance_from is None else read_accuracies(Path(args.acceptance_from))
    notes = [f"{name} is left out: a sweep measures our own methods." for name in methods if name not in own]
    records: list[dict[str, Any]] = []
    engine: Engine | None = None
    others = OtherWork()
    load = read_settings(LoadConfig, args)
    dtypes = swept_dtypes(place(load.device, "float32").device.type) if sweep == DTYPE else [load.dtype]
    for dtype in dtypes:
        engine, found, said = _measured(args, sweep, replace(load, dtype=dtype), own, accuracies)
        records += found
        notes += said
    assert engine is not None
    record = sweep_record(engine, sweep, records, notes, others)
    _print(record)
    if args.json:
        print(json.dumps(record, ensure_ascii=False))


def _sweep(args: argparse.Namespace) -> str:
    """What is swept. Raises MedusaError for flags that contradict each other."""
    if args.batch is not None and args.sweep not in (None, BATCH):
        raise MedusaError(f"--batch is a sweep of its own: leave out --sweep {args.sweep}")
    if args.sweep is None and args.batch is None and args.shape is None:
        raise MedusaError("--values and --acceptance-from belong to a sweep: give --sweep or --shape too")
    sweep = BATCH if args.batch is not None else args.sweep or NODES
    if args.values is not None and (args.batch is not None or sweep == DTYPE):
        raise MedusaError("--values are those of --sweep nodes, context or batch: leave them out")
    return sweep


def _values(args: argparse.Namespace, sweep: str) -> tuple[Sequence[int], bool]:
    """The values, and whether they were asked for. Raises MedusaError."""
    name, text = ("batch", args.batch) if args.batch is not None else ("values", args.values)
    if text is None:
        return (_SHAPE_NODES if args.shape and sweep == NODES else VALUES.get(sweep, ())), False
    return whole_numbers(text, name, 1, _MOST.get(sweep)), True


def _measured(
    args: argparse.Namespace,
    sweep: str,
    load: LoadConfig,
    methods: Sequence[str],
    accuracies: list[list[float]] | None,
) -> tuple[Engine, list[dict[str, Any]], list[str]]:
    """An engine, its points, and what was left out of them. Raises MedusaError."""
    config = read_run_settings(args)
    shape = None if args.shape is None else known_shapes()[f"llama-{args.shape}"]
    if shape is None:
        engine = load_for_runs(load, [config.changed(method=name) for name in methods])
    else:
        engine = random_engine(shape, place(load.device, load.dtype), accuracies, capture=load.capture)
        config = config.changed(ignore_eos=True)  # its text ends nowhere
    for name in methods:
        require_weights(name, engine.drafts, engine.info.base)
    values, asked = _values(args, sweep)
    note = ""
    if not asked:
        values, note = fitting(sweep, engine, values)
    prompts = chosen_prompts(args, engine) if shape is None else random_prompts(shape, _SHAPE_PROMPTS)
    prompts = filling(prompts, max(values) if sweep == BATCH else 0)
    cases = cases_of(sweep, engine, methods, config, prompts, values)
    with run_bar() as progress:
        records = measure_cases(cases, args.runs, progress)
    if shape is not None:
        records = [_of_shape(*one, accuracies) for one in zip(cases, records, strict=True)]
    return engine, records, [note] if note else []


def _of_shape(case: Case, record: dict[str, Any], accuracies: list[list[float]] | None) -> dict[str, Any]:
    """The record without figures that random weights make meaningless; known accuracies add a simulation."""
    meaningless = ("tokens_per_step", "tokens_per_second", "tokens_per_second_range", "gain", "over_first")
    kept = {name: value for name, value in record.items() if name not in meaningless}
    return kept if accuracies is None else kept | simulated(case, record, accuracies)


def _print(record: dict[str, Any]) -> None:
    points, table, out = record["points"], new_table(pad_edge=False), console()
    out.print(*headlines(record), sep="\n")
    columns = {name: words for name, words in _COLUMNS.items() if any(name in point for point in points)}
    table.add_column(record["sweep"], justify="right", no_wrap=True)
    for words in columns.values():
        table.add_column(words, justify="left" if words == "method" else "right", no_wrap=True)
    for point in points:
        table.add_row(str(point["value"]), *(_shown(point, name) for name in columns))
    out.print(table)
    out.print("Medians of the rounds (lowest–highest). A step of a batch is one forward of all its texts.")
    if any("simulated_tokens_per_step" in point for point in points):
        out.print("Simulated: what heads of the given accuracies would keep of these trees.")
    for note in filter(None, [*record["notes"], busy_words(record["machine"])]):
        out.print(note)


_COLUMNS = {
    "method": "method",
    "nodes": "nodes",
    "step_ms": "ms a step",
    "over_limit": "over\nlimit",
    "tokens_per_step": "tokens\nper step",
    "tokens_per_second": "tokens\nper second",
    "gain": "over\nplain",
    "over_first": "over the\nfirst",
    "simulated_tokens_per_step": "simulated\nper step",
    "simulated_tokens_per_second": "simulated\nper second",
}


def _shown(point: dict[str, Any], name: str) -> str:
    value = point.get(name)
    if value is None or isinstance(value, str):
        return value or NONE
    if name == "step_ms":
        low, high = point["step_ms_range"]
        return f"{value:.2f}\n{low:.2f}–{high:.2f}"
    return f"{value:.0f}" if name == "nodes" or value >= 100 else f"{value:.2f}"
