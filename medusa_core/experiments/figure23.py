"""Figure 23: simulated speedup against the candidates for several lengths (paper Appendix G.3).

Formulas alone, no model is run. Longer texts add attention, which gains less from reading several tokens.
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

TITLE = "Simulated speedup by sequence length"
QUALITY = None
SIMULATED = True  # computed from formulas, without a model


@dataclass(frozen=True)
class Settings(SimulatedSettings):
    """What its curves are drawn for."""

    batch: int = setting(4, "sequences at once", low=1, high=1024)
    contexts: str = setting("128,256,512,1024,2048,4096,8192", "comma-separated lengths")


QUICK: dict[str, object] = {}


def simulate(settings: Settings) -> Findings:
    """One curve a length of the text. Raises MedusaError."""
    from medusa_core.experiments.simulated import best_words, curve, findings, read_numbers

    shape, device = known_shapes()[settings.model], find_device(settings.device)
    curves = {
        f"{context} tokens": curve(shape, device, settings.batch, context)
        for context in read_numbers(settings.contexts, "contexts")
    }
    return findings(shape, device, curves, [best_words(name, each) for name, each in curves.items()])
