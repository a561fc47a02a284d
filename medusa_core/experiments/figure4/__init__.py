"""Figure 4: optimised trees against the best and random dense ones, by the number of nodes (paper §3.3.1).

Tokens per step (4a) and tokens per second (4b) are measured by the engine; the estimate from the heads'
accuracies, which chose the optimised trees, stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import check_settings, setting

TITLE = "Sparse against dense trees"
QUALITY = None


@dataclass(frozen=True)
class Settings:
    """Which trees."""

    nodes: str = setting("2,4,8,12,16,24,32,48,64,128,256", "sizes of the trees, the root included")
    random_trees: int = setting(2, "random dense trees of each size", low=0, high=20)
    seed: int = setting(0, "seed of the random trees", low=0)

    def __post_init__(self) -> None:
        check_settings(self)


DEFAULTS: dict[str, object] = {"limit": 2, "max_new_tokens": 64, "rounds": 2}
QUICK: dict[str, object] = {"nodes": "2,8,16", "random_trees": 1}
