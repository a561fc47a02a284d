"""What to expect here: plain decoding, Medusa and transformers' ``generate``, and a step by its nodes.

The headline of the store (paper, table 1: speedup, tokens per step and overhead). All decode the repository's
held-out prompts greedily and in turn. The times of a step by tree size come first and choose Medusa's tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa_core.config import TIMED_SIZES, setting

if TYPE_CHECKING:
    from medusa_core.experiments.record import Row

TITLE = "What to expect on this machine"
QUALITY = None
STEP = "a step"  # the series of the times of a step by its nodes
NAMES = {"none": "plain decoding", "medusa": "Medusa", "hf": "`generate`", "hf-lookup": "its prompt lookup"}


@dataclass(frozen=True)
class Settings:
    """Which steps are timed."""

    nodes: str = setting(
        ",".join(map(str, TIMED_SIZES)), "sizes of trees whose steps are timed; 1 is plain decoding"
    )


def step_times(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The times of a step by nodes as ``latency`` lists them."""
    return [
        {
            "nodes": row.tree_nodes,
            "step_ms": row.step_ms,
            "tokens_per_step": row.tokens_per_step.mean,
            **row.phase_ms,
        }
        for row in rows
        if row.series == STEP
    ]


DEFAULTS: dict[str, object] = {"limit": 8, "max_new_tokens": 96}
QUICK: dict[str, object] = {"nodes": "1,4"}
