"""Table 1 of EAGLE-3: drafters side by side at T = 0 and T = 1, without loss (arXiv 2503.01840, §4.1).

The paper compares EAGLE-3 with a draft model, prompt lookup, Medusa, Hydra and others on large chat models.
Here those run that the loaded weights allow, each with a rule that keeps the model's distribution: `match` at
temperature 0, `rejection` above it. EAGLE-3 runs twice: with the settings its weights bring for this machine
or the drafter's defaults, and with the public tree, which a GPU verifies in about the time of one token.
So does Medusa, whose second tree has as many nodes: tokens per step compare where trees are of one size.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting

TITLE = "Drafters without loss, at two temperatures"
QUALITY = None
PUBLIC_TREE = {"draft_top_k": 10, "draft_depth": 8, "draft_nodes": 59}  # §4: depth 8, with EAGLE-2's 60 nodes


@dataclass(frozen=True)
class Settings:
    """The temperatures that are compared."""

    temperatures: str = setting("0,1", "temperatures from 0 to 2, with commas between them")


DEFAULTS: dict[str, object] = {"limit": 3, "max_new_tokens": 96, "rounds": 2}
QUICK: dict[str, object] = {}
