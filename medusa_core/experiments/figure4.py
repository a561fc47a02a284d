"""Figure 4: optimised trees against the best and random dense ones, by the number of nodes (paper §3.3.1).

Tokens per step (4a) and tokens per second (4b) are measured by the engine; the estimate from the heads'
accuracies, which chose the optimised trees, stands beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from medusa_core.config import setting, whole_numbers
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.trees.baselines import best_cartesian, random_cartesian
from medusa_core.trees.search import assumed_accuracies, expected_lengths, search_tree
from medusa_core.trees.tree import MAX_NODES, Topology

if TYPE_CHECKING:
    from medusa_core.experiments.record import Row
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "Sparse against dense trees"


@dataclass(frozen=True)
class Settings:
    """Which trees are measured."""

    nodes: str = setting("2,4,8,12,16,24,32,48,64,128,256", "sizes of the trees, the root included")
    random_trees: int = setting(2, "random dense trees of each size", low=0, high=20)
    seed: int = setting(0, "seed of the random trees", low=0)


DEFAULTS: dict[str, object] = {"limit": 2, "max_new_tokens": 64, "rounds": 2}
QUICK: dict[str, object] = {"nodes": "2,8,16", "random_trees": 1}
OPTIMISED, CARTESIAN, RANDOM = "optimised", "cartesian", "random"


@dataclass(frozen=True)
class Candidate:
    """A tree to measure."""

    series: str
    label: str
    tree: Topology


def measure(setup: Setup, settings: Settings) -> Findings:
    """Every tree on every prompt, interleaved with plain decoding. Raises MedusaError."""
    from medusa_core.experiments.setup import Case, Findings

    engine, notes = setup.engine, []
    draft = medusa_draft(engine)
    accuracies = draft.accuracies or assumed_accuracies(draft.heads.count)
    if draft.accuracies is None:
        notes.append("The heads bring no measured accuracies: trees and estimate go by assumed ones.")
    sizes = sorted({*whole_numbers(settings.nodes, "nodes", 2, MAX_NODES)})
    cases = [Case.plain(engine, x=1, expected=1.0)]
    for c in candidate_trees(accuracies, sizes, settings):
        nodes, expected = c.tree.size, expected_lengths(accuracies, c.tree.choices)[-1]
        cases.append(Case(c.label, engine, {"tree": c.tree}, nodes, c.series, nodes, expected))
    rows, _ = setup.compare(cases)
    notes.append(
        "Cartesian trees are dense: all nodes of a depth have as many children. The series has the one with "
        "the highest estimate of all that have at most so many nodes; random ones are drawn evenly among the "
        "dense shapes between two sizes, as the paper samples them."
    )
    return Findings(rows, [*notes, *comparison(rows)])


def comparison(rows: list[Row]) -> list[str]:
    """The paper's claim here: an optimised tree of a quarter of the nodes against the largest dense one.

    A difference within the standard errors of both is none.
    """
    dense = [row for row in rows if row.series in (CARTESIAN, RANDOM)]
    if not dense:
        return []
    largest = max(dense, key=lambda row: row.tree_nodes or 0)
    sparse = [row for row in rows if row.series == OPTIMISED and 4 * (row.x or 0) <= (largest.x or 0)]
    if not sparse:
        return []
    ours, theirs = sparse[-1].tokens_per_step, largest.tokens_per_step
    error = math.hypot(ours.standard_error or 0.0, theirs.standard_error or 0.0)
    more = "more than" if ours.mean - theirs.mean > error else "no more, within the errors, than"
    if theirs.mean - ours.mean > error:
        more = "fewer than"
    return [f"The {sparse[-1].label} keeps {more} the {largest.label} of {largest.tree_nodes} nodes."]


def candidate_trees(accuracies: list[list[float]], sizes: list[int], settings: Settings) -> list[Candidate]:
    """The trees of every size, each once: two budgets may have the same best cartesian tree."""
    found: dict[str, Candidate] = {}

    def offer(series: str, label: str, tree: Topology) -> None:
        found.setdefault(label, Candidate(series, label, tree))

    for before, size in pairwise([1, *sizes]):
        tree = search_tree(accuracies, size - 1).topology
        offer(OPTIMISED, f"{OPTIMISED} {tree.size}", tree)
        cartesian = best_cartesian(accuracies, size)
        offer(CARTESIAN, f"{CARTESIAN} {'×'.join(map(str, cartesian.widths))}", cartesian.topology())
        drawn = random_cartesian(accuracies, before, size, settings.random_trees, settings.seed)
        for shape in drawn:
            offer(RANDOM, f"{RANDOM} {'×'.join(map(str, shape.widths))}", shape.topology())
    return list(found.values())
