"""Make the recorded runs of Watch anew: `python -m tools.record_runs`, after a change of model or drafters.

Each keeps its file, prompt and settings. Check that it still shows what its name promises: with other
weights another `--seed` may be needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medusa_core.api import load
from medusa_core.cli.main import exit_code_of
from medusa_core.config import RUN_SETTINGS, GenerationConfig
from medusa_core.drafters.medusa import AUTO
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.trace.format import read_trace
from ui.records.examples import ASSETS


def main(arguments: list[str] | None = None) -> None:
    """Write the files, and say how long each run is now. Raises MedusaError."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_runs", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the files' names; default: all of them")
    parser.add_argument("--seed", type=int, help="of a run at a temperature; default: that of the recording")
    parser.add_argument("--folder", type=Path, default=ASSETS / "traces", help="default: %(default)s")
    flags = parser.parse_args(arguments)
    if not flags.folder.is_dir():
        raise MedusaError(f"there is no folder {flags.folder}: name another, or leave --folder out")
    files = [
        file
        for file in sorted(flags.folder.glob("*.json"))
        if not flags.names or any(name in file.name for name in flags.names)
    ]
    if not files:
        raise MedusaError(f"{flags.folder} has no such recording: leave out the names, or the folder")
    engines: dict[str, Engine] = {}
    for file in files:
        trace = read_trace(file).model_dump(mode="json")
        dtype = trace["model"]["dtype"]
        if dtype not in engines:
            engines[dtype] = load(dtype=dtype, device="cpu")
        run = recorded(engines[dtype], trace, flags.seed).ended()
        write_trace(run, file)
        output = run.trace()["output"]
        print(f"{file.stem}: {output['new_tokens']} tokens in {output['steps']} steps")


def recorded(engine: Engine, trace: Mapping[str, Any], seed: int | None = None) -> TraceBuilder:
    """The run of a trace made again by this engine. Raises MedusaError for settings that it does not have."""
    settings = trace["config"]
    drafter, rule = settings["drafter"], settings["acceptance"]
    given = {name: settings[name] for name in RUN_SETTINGS if settings.get(name) is not None}
    if seed is not None:
        given["seed"] = seed
    options = drafter["settings"] | rule["settings"]
    if options.get("tree") == AUTO:
        options["tree"] = "default"  # "auto" takes a different tree on each machine
    config = GenerationConfig.of(method=drafter["name"], acceptance=rule["name"], **given | options)
    prompt = engine.encode(trace["prompt"]["text"])
    builder = TraceBuilder(engine, config, prompt)
    for step in engine.stream(prompt, config):
        builder.add(step)
    return builder


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
