"""Measures figure 4; what it is and its settings are in the package."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import Runner
from medusa_core.experiments.figure4 import Settings
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.trees.baselines import best_cartesian, random_choices
from medusa_core.trees.search import assumed_accuracies, expected_lengths, search_tree
from medusa_core.trees.tree import MAX_NODES, Topology

OPTIMISED, CARTESIAN, RANDOM, PLAIN = "optimised", "cartesian", "random", "plain decoding"


@dataclass(frozen=True)
class Candidate:
    """A tree to measure."""

    series: str
    label: str
    tree: Topology


def measure(setup: Setup, settings: Settings) -> Findings:
    """Every tree on every prompt, interleaved with plain decoding. Raises MedusaError."""
    engine = setup.require_heads()
    notes = []
    draft = medusa_draft(engine)
    accuracies = draft.accuracies or assumed_accuracies(draft.heads.count)
    if draft.accuracies is None:
        notes.append("The heads bring no measured accuracies: trees and estimate go by assumed ones.")
    candidates = candidate_trees(accuracies, read_sizes(settings.nodes), settings)
    runners: dict[str, Runner] = {PLAIN: setup.runner(engine, method="none")}
    runners |= {c.label: setup.runner(engine, c.tree) for c in candidates}
    logs = setup.interleave(runners)
    base = logs[PLAIN]
    rows = [make_row(base, base, series=PLAIN, label=PLAIN, x=1, tree_nodes=1, expected=1.0)]
    for c in candidates:
        expected = expected_lengths(accuracies, c.tree.choices)[-1]
        rows.append(
            make_row(
                logs[c.label], base, series=c.series, label=c.label, x=c.tree.size,
                tree_nodes=c.tree.size, expected=expected,
            )
        )  # fmt: skip
    notes.append(
        "A cartesian tree is the one with the highest estimate of all that have at most so many nodes; "
        "a random tree grows by nodes drawn evenly among those that can be added."
    )
    return Findings(rows, notes)


def read_sizes(text: str) -> list[int]:
    """Sizes from "2,8,16". Raises MedusaError for anything that is no list of tree sizes."""
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = [0]
    if sizes[0] < 2 or sizes[-1] > MAX_NODES:
        raise MedusaError(f"--nodes is {text!r}: write sizes from 2 to {MAX_NODES}, as in 2,8,16")
    return sizes


def candidate_trees(accuracies: list[list[float]], sizes: list[int], settings: Settings) -> list[Candidate]:
    """The trees of every size, each once: two budgets may have the same best cartesian tree."""
    found: dict[str, Candidate] = {}

    def offer(series: str, label: str, tree: Topology) -> None:
        found.setdefault(label, Candidate(series, label, tree))

    for size in sizes:
        tree = Topology.from_choices(search_tree(accuracies, size - 1).choices)
        offer(OPTIMISED, f"{OPTIMISED} {tree.size}", tree)
        cartesian = best_cartesian(accuracies, size)
        offer(CARTESIAN, f"{CARTESIAN} {'×'.join(map(str, cartesian.widths))}", cartesian.topology())
        for number in range(settings.random_trees):
            tree = Topology.from_choices(random_choices(accuracies, size, settings.seed + number))
            offer(RANDOM, f"{RANDOM} {tree.size}, no. {number + 1}", tree)
    return list(found.values())
