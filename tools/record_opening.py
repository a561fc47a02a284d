"""Record what Train and Measured here show before anything has run: `python -m tools.record_opening WHAT`.

Both are made by the page's own code, with the embedded model. Renew them on a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from medusa_core.cli.main import exit_code_of
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.speedup import Gain
from ui.figures.hardware import Growth, Kinds, Passes, Products
from ui.figures.training import Curves, rounded
from ui.records.examples import ASSETS
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.tabs.hardware import live
from ui.tabs.openings import FILES, Origin, RecordedHardware, RecordedTraining, write_opening
from ui.tabs.train.plan import FILE, OWN, Plan
from ui.tabs.train.run import train_heads

TRAINING, HARDWARE = "training", "hardware"
TOKENS = 128  # tokens written with and without a cache


def main(arguments: list[str] | None = None) -> None:
    """Write the file. Raises MedusaError."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_opening", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=(TRAINING, HARDWARE))
    parser.add_argument("--minutes", type=float, default=5.0, help="of training; default: %(default)s")
    parser.add_argument("--file", type=Path, help="a .txt or .jsonl file to learn from; default: own text")
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder of the file; default: %(default)s")
    flags = parser.parse_args(arguments)
    session = Session(LoadConfig())
    session.load_own()
    plan = Plan("medusa1", FILE if flags.file else OWN, upload=str(flags.file or ""), minutes=flags.minutes)
    made = record_training(session, plan) if flags.what == TRAINING else record_hardware(session)
    write_opening(made, flags.out / FILES[type(made)])


def record_training(session: Session, plan: Plan) -> RecordedTraining:
    """A training on this machine, as the page makes it. Raises MedusaError."""
    curves = Curves()
    gain: Gain | None = None
    for update in train_heads(session, plan, StopFlag()):
        if update.problem:
            raise MedusaError(update.status or "the training failed")
        if update.status:
            print(update.status)
        curves = update.curves or curves
        gain = update.trained.gain if update.trained else gain
    return RecordedTraining(origin(session), plan.recipe, plan.source, plan.minutes, rounded(curves), gain)


def record_hardware(session: Session) -> RecordedHardware:
    """The four measurements of Measured here, one after the other. Raises MedusaError."""
    passes, growth, kinds, products = Passes(), Growth(), Kinds(), Products()
    for name in (live.PASSES, live.CACHE, live.SHARING, live.PRODUCTS):
        for found in live.measure(session, name, TOKENS, Selection(), StopFlag()):
            if found.problem:
                raise MedusaError(found.status or f"{name} could not be measured")
            passes, growth, kinds = found.passes or passes, found.growth or growth, found.kinds or kinds
            products = found.products or products
    return RecordedHardware(origin(session), passes, growth, kinds, products)


def origin(session: Session) -> Origin:
    """This machine and the model, now. Raises MedusaError when the model is gone."""
    from medusa_core.evaluation.bench import machine_record  # noqa: PLC0415 - imports torch

    engine = session.models.at_hand(Selection())
    if engine is None:
        raise MedusaError("the model was dropped meanwhile: record again")
    machine = machine_record(engine)
    today = datetime.now(UTC).date().isoformat()
    return Origin(engine.info.name, engine.info.dtype, machine["processor"], machine["threads"], today)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
