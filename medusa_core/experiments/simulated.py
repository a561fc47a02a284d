"""Rows of experiments that formulas compute: no model runs, so there are no prompts and no spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import computed_row
from medusa_core.experiments.settings import SimulatedSettings
from medusa_core.experiments.setup import Findings
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.operators import Work, step_seconds
from medusa_core.hardware.shapes import known_shapes
from medusa_core.hardware.simulation import Gain, best, gains

READING = (
    "Tokens per step are the paper's 0.477·log(candidates) with base 2, which is our reading: the paper "
    "does not print the base. They are never below 1, since a step keeps its root."
)


def findings(
    settings: SimulatedSettings, steps: Mapping[str, tuple[int, int, str]], notes: Sequence[str] = ()
) -> Findings:
    """A curve for each of ``steps``: batch, context and how reading and arithmetic overlap, by its name.

    Raises MedusaError for a batch or a context that is out of range.
    """
    shape, device = known_shapes()[settings.model], find_device(settings.device)
    rows: list[Row] = []
    bests: list[str] = []
    for name, (batch, context, cost) in steps.items():
        found = gains(shape, device, batch, context, cost=cost)
        bests.append(_best_words(name, found))
        for gain in found:
            seconds = step_seconds(shape, Work(batch, gain.candidates, context), device, cost)
            row = computed_row(
                series=name,
                label=f"{gain.candidates} candidates",
                x=gain.candidates,
                nodes=gain.candidates,
                kept=gain.acceleration,
                rate=batch * gain.acceleration / seconds,
                step_ms=1000 * seconds,
                overhead=gain.latency,
            )
            rows.append(row)
    return Findings(rows, [READING, *notes, *bests])


def _best_words(name: str, found: Sequence[Gain]) -> str:
    """A sentence on the best number of candidates of a curve."""
    top = best(found)
    if top.speedup <= 1:
        return f"{name}: no number of candidates is faster than plain decoding."
    return f"{name}: best with {top.candidates} candidates, {top.speedup:.2f} times plain decoding."
