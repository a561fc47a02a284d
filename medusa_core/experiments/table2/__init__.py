"""Table 2: Medusa-1, two-stage Medusa-2 and direct fine-tuning, quality and speedup (paper §3.3.3).

The paper's quality is a grade by GPT-4; ours is the base's held-out loss: what joint training does to the
model itself, before any decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting
from medusa_core.experiments.settings import QUICK_VARIANTS, VariantSettings

TITLE = "Medusa-1, Medusa-2 and direct fine-tuning"
QUALITY = "held-out loss of the base in nats a token; lower is better"


@dataclass(frozen=True)
class Settings(VariantSettings):
    """Variants, and the text that judges the base."""

    heldout: str = setting("", "comma-separated text files; default: text the untouched base draws at T = 1")
    window: int = setting(512, "tokens of a held-out window", low=8, high=8192)
    windows: int = setting(64, "windows of each held-out file at most", low=1)


TRAINS = True  # the variants that are not given
DEFAULTS: dict[str, object] = {"limit": 6}
QUICK: dict[str, object] = QUICK_VARIANTS | {"windows": 4}
