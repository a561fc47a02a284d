"""Record the race that Compare shows before anything has run: `python -m tools.record_race`.

It is made by Compare itself, with the embedded model and the prompt that the page opens with: greedy Medusa
against plain decoding. Renew it on a quiet machine after a change of the model, its heads or the engine's
speed.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from medusa_core.cli.main import exit_code_of
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from tools.record_opening import origin
from ui.records.examples import ASSETS, RACE_FILE, recordings
from ui.records.settings import RunSettings
from ui.records.updates import StopFlag
from ui.runs.compare import MOST_REPETITIONS, CompareRequest
from ui.runs.session import Session

TOKENS = 128


def main(arguments: list[str] | None = None) -> None:
    """Write the file, and say how fast the lanes were. Raises MedusaError."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_race", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ASSETS / RACE_FILE, help="default: %(default)s")
    flags = parser.parse_args(arguments)
    race = record(Session(LoadConfig()), recordings()[0].settings["prompt"])
    flags.out.write_text(json.dumps(race, ensure_ascii=False, separators=(",", ":")), "utf-8")
    for lane in race["lanes"]:
        speeds = ", ".join(f"{speed:.0f}" for speed in lane["runs"])
        print(f"{lane['name']}: {speeds} tokens/s")


def record(session: Session, prompt: str, tokens: int = TOKENS) -> dict[str, Any]:
    """The race on this machine, as the tab's message. Raises MedusaError."""
    settings = RunSettings(max_new_tokens=tokens)
    updates = list(session.run(CompareRequest(prompt, settings, MOST_REPETITIONS), StopFlag()))
    if updates[-1].problem or updates[-1].message is None:
        raise MedusaError(updates[-1].status or "the comparison gave no result")
    made = origin(session)
    recorded = {
        "model": made.model,
        "dtype": made.dtype,
        "machine": made.processor,
        "threads": made.threads,
        "torch": version("torch"),
        "date": made.date,
    }
    return {**json.loads(updates[-1].message), "seq": 0, "recorded": recorded}


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
