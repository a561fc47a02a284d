"""``reproduce all``: everything that the project states, measured in turn on this machine and kept."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from medusa_core.cli.flags import check_output_folder, read_settings
from medusa_core.cli.load import load_with_line
from medusa_core.cli.reproduce import (
    WRITES_TABLES,
    check_stored,
    default_flags,
    machine_of,
    measured,
    simulated,
)
from medusa_core.config import LoadConfig
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.other_work import busy_words
from medusa_core.experiments import experiment_names, is_simulated, load_experiment, store
from medusa_core.experiments.record import ExperimentRecord, MachineRecord
from medusa_core.experiments.remarks import current_record


def run(args: argparse.Namespace) -> None:
    """Measure and keep each experiment, but for those that are kept already. Raises MedusaError."""
    if args.store:
        check_stored(args, "--into")
    folder = store.MEASURED if args.store else Path(args.into)
    check_output_folder(str(folder), "--store" if args.store else "--into")
    engine = load_with_line(read_settings(LoadConfig, args))
    kind = store.kind_of(MachineRecord(**machine_of(engine)))
    names = chosen_names(train=args.train)
    failed = []
    for number, name in enumerate(names, start=1):
        line = f"{number} of {len(names)}: {name}"
        if not args.again and (kept := current_record(name, kind, folder)) is not None:
            print(f"{line}, kept from {kept.date}; --again renews it")
            continue
        print(f"{line}: {load_experiment(name).TITLE} …", flush=True)
        begun = perf_counter()
        try:
            record = _made(name, args, engine)
        except MedusaError as error:
            failed.append(name)
            print(f"{line} failed: {error}", file=sys.stderr)
            continue
        file = store.keep(record, folder)
        print(f"{line}, {perf_counter() - begun:.0f} s: {file}", flush=True)
        if words := busy_words(record.machine.model_dump()):
            print(f"warning: {words}", file=sys.stderr)
    for line in store.older_records(folder):
        print(line)
    if args.store:
        print(WRITES_TABLES)
    if failed:
        raise MedusaError(f"{', '.join(failed)} could not be measured: the reasons are above")


def chosen_names(*, train: bool) -> list[str]:
    """The headline first, then what is measured, what trains where it is asked for, and what is computed."""
    places: dict[str, tuple[bool, ...]] = {}
    for name in experiment_names():
        module = load_experiment(name)
        places[name] = (name != store.HEADLINE, is_simulated(module), getattr(module, "TRAINS", False))
    return sorted((name for name in places if train or not places[name][-1]), key=places.__getitem__)


def _made(name: str, args: argparse.Namespace, engine: Engine) -> ExperimentRecord:
    """The record as ``reproduce NAME`` makes it with no other flags than those of the model."""
    module = load_experiment(name)
    flags = {"prompts": None, **default_flags(module)}
    if is_simulated(module):
        return simulated(name, argparse.Namespace(**flags))
    flags |= asdict(read_settings(LoadConfig, args)) | {"quick": args.quick}
    return measured(name, argparse.Namespace(**flags), engine)
