"""Every method on one set of prompts, and a step by its nodes: what to expect on a machine.

The headline of the store: all figures of speed that the page and the README state of plain decoding, of each
drafter, of transformers' ``generate`` and of a step by its nodes come from this one interleaved run. It is
made in the manner of Spec-Bench (Xia et al., 2024, arXiv 2401.07851), which asks 480 questions of six kinds;
ours are the kinds of text that the model can write. A method's speedup is its tokens per second over plain
decoding's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa_core.config import TIMED_SIZES, setting

if TYPE_CHECKING:
    from medusa_core.experiments.record import Row

TITLE = "Every drafter, and what to expect on this machine"
ALL = "all kinds"
STEP = "a step"  # the series of the times of a step by its nodes
NAMES = {"none": "plain decoding", "medusa": "Medusa", "hf": "`generate`", "hf-lookup": "its prompt lookup"}


@dataclass(frozen=True)
class Settings:
    """Kinds come with the prompts, methods with the loaded weights."""

    nodes: str = setting(
        ",".join(map(str, TIMED_SIZES[1:])),
        "sizes of Medusa's trees whose steps are timed",
    )


def step_times(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The times of a step by nodes as ``latency`` lists them.

    Plain decoding and Medusa's own tree have the times of their rows over all kinds of text, which are stated
    beside them.
    """
    by_nodes = {row.tree_nodes: row for row in rows if row.series == STEP}
    by_nodes |= {row.tree_nodes: row for row in of_all_kinds(rows) if row.series in ("none", "medusa")}
    return [
        {
            "nodes": nodes,
            "step_ms": row.step_ms,
            "tokens_per_step": row.tokens_per_step.mean,
            **row.phase_ms,
        }
        for nodes, row in sorted(by_nodes.items(), key=lambda item: item[0] or 1)
    ]


def of_all_kinds(rows: Sequence[Row]) -> list[Row]:
    """The row of each method over all kinds of text."""
    return [row for row in rows if row.label == ALL and row.series != STEP]


def by_series(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each series, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.series, []).append(row)
    return found


DEFAULTS: dict[str, object] = {"limit": 3, "max_new_tokens": 96}
QUICK: dict[str, object] = {"nodes": "4"}
