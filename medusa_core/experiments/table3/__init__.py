"""Table 3: what each technique adds: heads, tree attention, the optimised tree, Medusa-2 (paper, table 3)."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.experiments.settings import QUICK_VARIANTS, VariantSettings

TITLE = "What each technique adds"
QUALITY = None


@dataclass(frozen=True)
class Settings(VariantSettings):
    """The two variants and the size of their trees."""


TRAINS = True  # the variants that are not given
DEFAULTS: dict[str, object] = {"limit": 6}
QUICK: dict[str, object] = QUICK_VARIANTS
