"""What Train and Measured here show before a visitor has pressed anything: records of real runs.

``python -m tools.record_opening`` makes them; a page without them begins with empty charts.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from medusa_core.errors import one_line
from medusa_core.evaluation.speedup import Gain
from medusa_core.files import read_bytes
from ui.figures.hardware import Growth, Kinds, Passes, Products
from ui.figures.training import Curves
from ui.records.figures import SMALL_MODEL, recorded_words
from ui.records.words import Words, sentences


@dataclass(frozen=True)
class Origin:
    """Where and when a record was made."""

    model: str
    dtype: str
    processor: str
    threads: int
    date: str  # ISO 8601

    @property
    def words(self) -> Words:
        made = recorded_words(self.model, self.dtype, self.processor, self.threads, self.date)
        return sentences(made, SMALL_MODEL)


@dataclass(frozen=True)
class RecordedTraining:
    """A training as Train shows it."""

    origin: Origin
    recipe: str
    source: str
    minutes: float  # of training, without loading
    curves: Curves
    gain: Gain | None


@dataclass(frozen=True)
class RecordedHardware:
    """What Measured here shows."""

    origin: Origin
    passes: Passes
    growth: Growth
    kinds: Kinds
    products: Products


FILES: dict[type, str] = {RecordedTraining: "training.json", RecordedHardware: "hardware.json"}
Opening = TypeVar("Opening", RecordedTraining, RecordedHardware)


def recorded(kind: type[Opening], assets: Path) -> Opening | None:
    """The record of that kind, if there is one; a broken one is logged."""
    file = assets / FILES[kind]
    if not file.exists():
        return None
    try:
        return TypeAdapter(kind).validate_json(read_bytes(file))
    except (OSError, ValidationError) as error:
        # Pydantic ends each error with a link; the first error says enough.
        reason, _, _ = one_line(str(error)).partition(" For further information")
        words = "warning: a recorded opening is left out: %s holds none (%s): record it anew"
        logging.getLogger(__name__).warning(words, file, reason)
        return None


def write_opening(record: RecordedTraining | RecordedHardware, file: Path) -> None:
    """Write it for `recorded`. Raises OSError."""
    file.write_bytes(TypeAdapter(type(record)).dump_json(record))
