"""What ``reproduce`` does. Its flags are in ``commands/reproduce``."""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import shlex
import sys
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import transformers

from medusa_core.cli.commands.reproduce import SHIPPED
from medusa_core.cli.flags import check_output_file, flag_of, read_settings
from medusa_core.cli.load import load_with_line
from medusa_core.cli.progress import show_progress
from medusa_core.cli.tables import new_table, wide_console
from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import machine_record
from medusa_core.evaluation.other_work import OtherWork
from medusa_core.evaluation.prompts import HELD_OUT, chosen_part, read_prompts, shipped_kinds
from medusa_core.experiments import is_simulated, load_experiment, load_measurement, store
from medusa_core.experiments.record import (
    SCHEMA_VERSION,
    ExperimentRecord,
    MachineRecord,
    ModelRecord,
    as_json,
    paper_facts,
    row_cells,
    write_record,
)
from medusa_core.experiments.remarks import current_record, shipped_weights
from medusa_core.experiments.settings import QUICK_RUN, RunSettings
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.shapes import known_shapes

WRITES_TABLES = "python -m tools.measured_tables writes them into README, docs and cards"
_SETTING_WIDTH = 30  # columns of a row's name, a longer one in two lines


def run(args: argparse.Namespace) -> None:
    """Measure, print a table, write the record. Raises MedusaError for bad input."""
    name, module = args.experiment, load_experiment(args.experiment)
    if args.again and not args.store:
        raise MedusaError("--again renews the record that --store keeps: add --store, or leave out --again")
    if args.out is not None:
        check_output_file(args.out, "--out", folder_is_made=True)
    if args.store:
        check_output_file(str(store.MEASURED / name), "--store", folder_is_made=True)
    record = simulated(name, args) if is_simulated(module) else _measured_record(args)
    print_table(record)
    for path in (args.out, store.place_of(record) if args.store else None):
        if path:
            write_record(record, Path(path))
            print(f"written: {path}", file=sys.stderr)
    for line in (*store.older_records(), WRITES_TABLES) if args.store else ():
        print(line, file=sys.stderr)
    if args.json:
        print(json.dumps(as_json(record), ensure_ascii=False))


def _measured_record(args: argparse.Namespace) -> ExperimentRecord:
    if args.store:
        check_stored(args, "--out")
    chosen_part(args)  # raises before the model is loaded
    engine = load_with_line(read_settings(LoadConfig, args))
    if args.store and not args.again:
        kept = current_record(args.experiment, store.kind_of(MachineRecord(**machine_of(engine))))
        if kept and kept.command == command_line(args.experiment, args):
            words = f"kept from {kept.date}, by this command and this engine; --again renews it"
            print(words, file=sys.stderr)
            return kept
    return measured(args.experiment, args, engine)


def check_stored(args: argparse.Namespace, elsewhere: str) -> None:
    """Raise MedusaError for a run whose figures are not the project's; ``elsewhere`` is the flag for it."""
    if args.quick:
        raise MedusaError("a quick run is too coarse to be shipped: leave out --quick or --store")
    if (args.model, args.heads) != (LoadConfig.model, LoadConfig.heads):
        raise MedusaError(
            f"--store keeps figures of the embedded model with its heads: use {elsewhere} for others"
        )


def measured(name: str, args: argparse.Namespace, engine: Engine) -> ExperimentRecord:
    """The record of an experiment on a loaded engine. Raises MedusaError."""
    module = load_experiment(name)
    command = command_line(name, args)
    if args.quick:
        make_quick(module, args)
    settings = read_settings(module.Settings, args)
    setup = Setup(
        engine=engine,
        load=read_settings(LoadConfig, args),
        prompts=chosen_prompts(args, engine),
        run=read_settings(RunSettings, args),
        data_root=Path(args.data_root),
        watch=show_progress,
    )
    others = OtherWork()
    findings = load_measurement(name).measure(setup, settings)
    machine = MachineRecord(**machine_of(engine) | others.record())
    info = findings.info or engine.info
    known = {field: getattr(info, field) for field in ModelRecord.model_fields if hasattr(info, field)}
    counts = ", ".join(f"{kind} {len(prompts)}" for kind, prompts in setup.prompts.items())
    used = asdict(setup.run) | asdict(settings) | {"prompts": counts}
    return _record(
        name,
        command,
        machine,
        ModelRecord(**known, weights=shipped_weights(info.base)),
        findings,
        settings={key: _shown(value) for key, value in used.items()},
        quality=findings.quality or getattr(module, "QUALITY", None),
        engine=ENGINE_VERSION,
    )


def machine_of(engine: Engine) -> dict[str, Any]:
    """The description, for a record, of the machine that an engine runs on."""
    return machine_record(engine) | {"transformers": transformers.__version__}


def default_flags(module: ModuleType) -> dict[str, Any]:
    """Every flag of an experiment but --prompts and those of its output, at its default."""
    if is_simulated(module):
        return _defaults(module.Settings)
    flags: dict[str, Any] = {"skip": 0, "limit": None, "data_root": ".", "quick": False}
    settings = _defaults(RunSettings) | _defaults(module.Settings) | _defaults(LoadConfig)
    return flags | settings | module.DEFAULTS


def simulated(name: str, args: argparse.Namespace) -> ExperimentRecord:
    """The record of an experiment by formulas: the model is a shape, the machine a data sheet."""
    module = load_experiment(name)
    settings = read_settings(module.Settings, args)
    shape, device = known_shapes()[settings.model], find_device(settings.device)
    return _record(
        name,
        command_line(name, args),
        MachineRecord(processor=f"{device.title}, by its data sheet", threads=0, torch="", python=""),
        ModelRecord(
            name=shape.name,
            base=shape.name,
            heads=None,
            dtype="float16",
            device=device.name,
            parameters=shape.parameters,
        ),
        load_measurement(name).simulate(settings),
        settings=asdict(settings),
        quality=None,
        simulated=True,
    )


def chosen_prompts(args: argparse.Namespace, engine: Engine) -> dict[str, list[list[int]]]:
    """Prompts by kind of text, as the flags ask. Raises MedusaError when a kind is left without any."""
    part = chosen_part(args)
    if not args.prompts:
        found = shipped_kinds(engine, HELD_OUT)
    else:
        found, shipped = {}, shipped_kinds(engine)
        for entry in args.prompts:
            kind, _, file = entry.rpartition("=")
            if file == SHIPPED and kind not in shipped:
                raise MedusaError(f"no shipped prompts are of kind {kind!r}: use {', '.join(shipped)}")
            prompts = shipped[kind] if file == SHIPPED else read_prompts(Path(args.data_root, file), engine)
            found.setdefault(kind or Path(file).stem, []).extend(prompts)
    found = {kind: prompts[part] for kind, prompts in found.items()}
    if empty := [kind for kind, prompts in found.items() if not prompts]:
        raise MedusaError(f"--skip {args.skip} leaves no prompt of kind {', '.join(empty)}: lower it")
    return found


def make_quick(module: ModuleType, args: argparse.Namespace) -> None:
    """Lower every setting that was left at its default to what a smoke run needs."""
    defaults = default_flags(module)
    for name, value in (QUICK_RUN | getattr(module, "QUICK", {})).items():
        if getattr(args, name) == defaults[name]:
            setattr(args, name, value)


def _record(
    name: str, command: str, machine: MachineRecord, model: ModelRecord, findings: Findings, **more: Any
) -> ExperimentRecord:
    return ExperimentRecord(
        schema_version=SCHEMA_VERSION,
        name=name,
        title=load_experiment(name).TITLE,
        command=command,
        date=datetime.date.today().isoformat(),
        machine=machine,
        model=model,
        rows=findings.rows,
        paper=paper_facts(name),
        notes=findings.notes,
        **more,
    )


def command_line(name: str, args: argparse.Namespace) -> str:
    """The command with every flag that was set; absolute paths are cut to their last part."""
    words = ["python", "-m", "medusa_core", "reproduce", name]
    for entry in getattr(args, "prompts", None) or []:
        words += ["--prompts", str(_shown(entry))]
    for key, default in default_flags(load_experiment(name)).items():
        value = getattr(args, key)
        if value != default:
            words += [flag_of(key)] if value is True else [flag_of(key), str(_shown(value))]
    return shlex.join(words)


def _defaults(config: type) -> dict[str, object]:
    return {item.name: item.default for item in fields(config)}


def _shown(value: Any) -> Any:
    """A setting as it may be shared: an absolute path, alone or after NAME=, by its last part."""
    if not isinstance(value, str):
        return value
    parts = []
    for part in value.split(","):
        name, equals, path = part.rpartition("=")
        parts.append(name + equals + (Path(path).name if Path(path).is_absolute() else path))
    return ",".join(parts)


def print_table(record: ExperimentRecord) -> None:
    """The figures of all rows, in as many tables as the terminal's columns make necessary."""
    console = wide_console()
    console.print(
        f"{record.title} · {record.paper.reference} · {record.model.name} · {record.machine.processor}"
    )
    rows = [{name: cell.replace(" to ", "–") for name, cell in row_cells(row).items()} for row in record.rows]
    setting, *shown = (column for column in rows[0] if any(cells[column] for cells in rows))
    wide = {name: max(map(len, [*name.split(), *(cells[name] for cells in rows)])) + 1 for name in shown}
    first = min(_SETTING_WIDTH, 2 + max(len(cells[setting]) for cells in rows))
    while shown:
        room = itertools.accumulate((wide[name] for name in shown), initial=first)
        count = max(1, sum(end <= console.width for end in room) - 1)
        table = new_table(setting, pad_edge=False, show_edge=False)
        for name in shown[:count]:
            table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
        for cells in rows:
            table.add_row(cells[setting], *(cells[name] for name in shown[:count]))
        console.print(table)
        shown = shown[count:]
    for line in (*([f"Quality: {record.quality}"] if record.quality else []), *record.notes):
        console.print(line)
