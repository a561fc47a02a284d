"""Figure 22: simulated speedup against the candidates for several batches (paper Appendix G.3).

Formulas alone, no model is run. Larger batches make the linear layers wait for arithmetic instead of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting
from medusa_core.experiments.settings import SimulatedSettings
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.shapes import known_shapes

if TYPE_CHECKING:
    from medusa_core.experiments.setup import Findings

TITLE = "Simulated speedup by batch size"
QUALITY = None
SIMULATED = True  # computed from formulas, without a model


@dataclass(frozen=True)
class Settings(SimulatedSettings):
    """What its curves are drawn for."""

    batches: str = setting("1,2,4,8,16,32,64", "comma-separated batch sizes")
    context: int = setting(1024, "positions attended to", low=1, high=1_000_000)


QUICK: dict[str, object] = {}


def simulate(settings: Settings) -> Findings:
    """One curve a batch. Raises MedusaError."""
    from medusa_core.experiments.simulated import best_words, curve, findings, read_numbers

    shape, device = known_shapes()[settings.model], find_device(settings.device)
    curves = {
        f"batch {batch}": curve(shape, device, batch, settings.context)
        for batch in read_numbers(settings.batches, "batches")
    }
    return findings(shape, device, curves, [best_words(name, each) for name, each in curves.items()])
