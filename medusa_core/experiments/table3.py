"""Table 3: what each technique adds: heads, tree attention, the optimised tree, Medusa-2 (paper, table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.experiments.settings import MEDUSA1, MEDUSA2, QUICK_VARIANTS, VariantSettings
from medusa_core.trees.baselines import best_cartesian
from medusa_core.trees.tree import Topology

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.experiments.setup import Case, Findings, Setup

TITLE = "What each technique adds"


@dataclass(frozen=True)
class Settings(VariantSettings):
    """The two variants and the size of their trees."""


TRAINS = True  # the variants that are not given
DEFAULTS: dict[str, object] = {"limit": 6}
QUICK: dict[str, object] = QUICK_VARIANTS


def measure(setup: Setup, settings: Settings) -> Findings:
    """The four stages on all prompts, interleaved with plain decoding. Raises MedusaError."""
    from medusa_core.experiments.setup import Case, Findings
    from medusa_core.experiments.variants import base_info, load_variants, variant_notes

    engines = load_variants(setup, settings, [MEDUSA1, MEDUSA2])
    first = engines[MEDUSA1]
    rows, _ = setup.compare([Case.plain(first), *stages(first, engines[MEDUSA2], settings.nodes)])
    notes = [
        "Heads only: each head's single best guess, one below the other. The cartesian tree is the best of "
        f"at most {settings.nodes} nodes, so that it is no larger than the optimised one.",
        *variant_notes(setup, settings, [MEDUSA1, MEDUSA2]),
    ]
    return Findings(rows, notes, info=base_info(first))


def stages(medusa1: Engine, medusa2: Engine, nodes: int) -> list[Case]:
    """Heads only, then one technique more each; both engines with accuracies."""
    from medusa_core.experiments.variants import tree_case

    first = medusa_draft(medusa1)
    return [
        tree_case("heads only", medusa1, chain(first.heads.count)),
        tree_case("+ tree attention", medusa1, best_cartesian(first.require_accuracies(), nodes).topology()),
        tree_case("+ optimised tree", medusa1, first.budget_tree(nodes - 1)),
        tree_case("+ Medusa-2 training", medusa2, medusa_draft(medusa2).budget_tree(nodes - 1)),
    ]


def chain(heads: int) -> Topology:
    """Each head's single best guess, one below the other: heads without tree attention."""
    return Topology.from_choices([(0,) * depth for depth in range(1, heads + 1)])
