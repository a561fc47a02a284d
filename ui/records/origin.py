"""Where and when a recorded measurement was made, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ui.records.words import Words, amount, joined

if TYPE_CHECKING:
    from medusa_core.experiments.record import ExperimentRecord


def origin_words(record: ExperimentRecord) -> Words:
    """Model, machine and date of a stored experiment, for a tab that shows it before a press."""
    model, machine = record.model, record.machine
    threads = amount(machine.threads, "thread")
    return Words(
        "Recorded, not measured here: {0} in {1} on {2}, {3}.",
        model.name, model.dtype, joined(", ", [machine.processor, threads]), record.date,
    )  # fmt: skip
