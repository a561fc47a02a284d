"""Where and when a measurement was made, in words: the one name of its source on all tabs."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from ui.records.words import Words, amount, joined, sentences

if TYPE_CHECKING:
    from medusa_core.experiments.record import ExperimentRecord
    from ui.records.figures import Figures

EMBEDDED = "embedded"  # name of the repository's model in records
SMALL_MODEL = Words("A model of 29 MB in a processor’s cache is not an 8B model on a GPU.")


def source_words(figures: Figures) -> Words:
    """Of the speeds that the tabs show: on which machine and when, and how far they carry."""
    record = figures.record
    small = small_words(record.model.base)
    if not figures.at:
        return sentences(origin_words(record), small)
    day, _, time = figures.at.partition(" ")
    when = Words("today at {0}", time) if day == datetime.date.today().isoformat() else figures.at
    model = record.model
    measured = Words(
        "Measured on this machine, {0}: {1} in {2} on {3}.", when, model.name, model.dtype, _machine(record)
    )
    return sentences(measured, small)


def small_words(base: str | None) -> str:
    """How far the speeds of a model carry; nothing of one that is not the repository's."""
    return SMALL_MODEL if base == EMBEDDED else ""


def origin_words(record: ExperimentRecord) -> Words:
    """Model, machine and date of a stored experiment, for a tab that shows it before a press."""
    model = record.model
    return Words(
        "Recorded, not measured here: {0} in {1} on {2}, {3}.",
        model.name, model.dtype, _machine(record), record.date,
    )  # fmt: skip


def _machine(record: ExperimentRecord) -> Words:
    return joined(", ", [record.machine.processor, amount(record.machine.threads, "thread")])
