"""Figure 22: simulated speedup against the candidates for several batches (paper Appendix G.3).

Formulas alone, no model is run. Larger batches make the linear layers wait for arithmetic instead of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting, whole_numbers
from medusa_core.experiments.settings import SimulatedSettings
from medusa_core.hardware.operators import OVERLAPPED

if TYPE_CHECKING:
    from medusa_core.experiments.setup import Findings

TITLE = "Simulated speedup by batch size"
SIMULATED = True  # computed from formulas, without a model


@dataclass(frozen=True)
class Settings(SimulatedSettings):
    """What its curves are drawn for."""

    batches: str = setting("1,2,4,8,16,32,64", "comma-separated batch sizes")
    context: int = setting(1024, "positions attended to", low=1, high=1_000_000)


def simulate(settings: Settings) -> Findings:
    """One curve a batch. Raises MedusaError."""
    from medusa_core.experiments.simulated import findings

    batches = sorted({*whole_numbers(settings.batches, "batches", 1)})
    return findings(settings, {f"batch {batch}": (batch, settings.context, OVERLAPPED) for batch in batches})
