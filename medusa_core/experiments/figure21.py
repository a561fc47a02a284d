"""Figure 21: acceleration, speedup and latency against the candidates (paper Appendix G.3).

Formulas alone, no model is run: one block of a model on a device's roofline. The paper does not print the
base of its logarithm; base 2 is our reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting
from medusa_core.experiments.settings import SimulatedSettings
from medusa_core.hardware.operators import ADDED, OVERLAPPED

if TYPE_CHECKING:
    from medusa_core.experiments.setup import Findings

TITLE = "Simulated gain by number of candidates"
SIMULATED = True  # computed from formulas, without a model


@dataclass(frozen=True)
class Settings(SimulatedSettings):
    """What its curves are drawn for."""

    batch: int = setting(1, "sequences at once", low=1, high=1024)
    context: int = setting(1024, "positions attended to", low=1, high=1_000_000)


NAMES = {OVERLAPPED: "full overlap", ADDED: "no overlap"}
OVERLAP = (
    "Full overlap is the roofline: a product takes the longer of reading and arithmetic. No overlap adds "
    "the two; the speeds with 64 candidates that the paper measured on an A100 are 0.86 to 0.87 of that."
)


def simulate(settings: Settings) -> Findings:
    """One curve for each way in which reading and arithmetic may overlap. Raises MedusaError."""
    from medusa_core.experiments.simulated import findings

    steps = {name: (settings.batch, settings.context, cost) for cost, name in NAMES.items()}
    return findings(settings, steps, [OVERLAP])
