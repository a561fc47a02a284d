"""Figure 23: simulated speedup against the candidates for several lengths (paper Appendix G.3).

Formulas alone, no model is run. Longer texts add attention, which gains less from reading several tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting, whole_numbers
from medusa_core.experiments.settings import SimulatedSettings
from medusa_core.hardware.operators import OVERLAPPED

if TYPE_CHECKING:
    from medusa_core.experiments.setup import Findings

TITLE = "Simulated speedup by sequence length"
SIMULATED = True  # computed from formulas, without a model


@dataclass(frozen=True)
class Settings(SimulatedSettings):
    """What its curves are drawn for."""

    batch: int = setting(4, "sequences at once", low=1, high=1024)
    contexts: str = setting("128,256,512,1024,2048,4096,8192", "comma-separated lengths")


def simulate(settings: Settings) -> Findings:
    """One curve a length of the text. Raises MedusaError."""
    from medusa_core.experiments.simulated import findings

    contexts = sorted({*whole_numbers(settings.contexts, "contexts", 1)})
    return findings(
        settings, {f"{context} tokens": (settings.batch, context, OVERLAPPED) for context in contexts}
    )
