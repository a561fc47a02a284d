"""Table 3: what each technique adds: heads, tree attention, the optimised tree, Medusa-2 (paper, table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.experiments.settings import MEDUSA1, MEDUSA2, QUICK_VARIANTS, VariantSettings
from medusa_core.trees.baselines import best_cartesian
from medusa_core.trees.search import expected_lengths
from medusa_core.trees.tree import Topology

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.turns import Runner
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "What each technique adds"
QUALITY = None


@dataclass(frozen=True)
class Settings(VariantSettings):
    """The two variants and the size of their trees."""


TRAINS = True  # the variants that are not given
DEFAULTS: dict[str, object] = {"limit": 6}
QUICK: dict[str, object] = QUICK_VARIANTS
PLAIN = "plain decoding"


@dataclass(frozen=True)
class Stage:
    """One row of the table: an engine and its tree."""

    label: str
    engine: Engine
    tree: Topology


def measure(setup: Setup, settings: Settings) -> Findings:
    """The four stages on all prompts, interleaved with plain decoding. Raises MedusaError."""
    from medusa_core.experiments.rows import make_row
    from medusa_core.experiments.setup import Findings
    from medusa_core.experiments.variants import base_info, load_variants, variant_notes

    engines = load_variants(setup, settings, [MEDUSA1, MEDUSA2])
    rungs = stages(engines[MEDUSA1], engines[MEDUSA2], settings.nodes)
    runners: dict[str, Runner] = {PLAIN: setup.runner(engines[MEDUSA1], method="none")}
    runners |= {stage.label: setup.runner(stage.engine, stage.tree) for stage in rungs}
    logs = setup.interleave(runners)
    base = logs[PLAIN]
    rows = [make_row(base, base, series=PLAIN, label=PLAIN, tree_nodes=1)]
    for stage in rungs:
        expected = expected_lengths(medusa_draft(stage.engine).require_accuracies(), stage.tree.choices)[-1]
        row = make_row(
            logs[stage.label], base, series=stage.label, label=stage.label,
            tree_nodes=stage.tree.size, expected=expected,
        )  # fmt: skip
        rows.append(row)
    notes = [
        "Heads only: each head's single best guess, one below the other. The cartesian tree is the best of "
        f"at most {settings.nodes} nodes, so that it is no larger than the optimised one.",
        *variant_notes(setup, settings, [MEDUSA1, MEDUSA2]),
    ]
    return Findings(rows, notes, info=base_info(engines[MEDUSA1]))


def stages(medusa1: Engine, medusa2: Engine, nodes: int) -> list[Stage]:
    """Heads only, then one technique more each; both engines with accuracies."""
    first = medusa_draft(medusa1)
    return [
        Stage("heads only", medusa1, chain(first.heads.count)),
        Stage("+ tree attention", medusa1, best_cartesian(first.require_accuracies(), nodes).topology()),
        Stage("+ optimised tree", medusa1, first.budget_tree(nodes - 1)),
        Stage("+ Medusa-2 training", medusa2, medusa_draft(medusa2).budget_tree(nodes - 1)),
    ]


def chain(heads: int) -> Topology:
    """Each head's single best guess, one below the other: heads without tree attention."""
    return Topology.from_choices([(0,) * depth for depth in range(1, heads + 1)])
