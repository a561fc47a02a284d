"""Figure 3: speedup by kind of text (paper §3.1).

The paper's kinds are the categories of MT-Bench, ours those the model can write; what is compared is that
the gain depends on how predictable a text is, not the numbers one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.experiments.settings import PLAIN

if TYPE_CHECKING:
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "Speedup by kind of text"


@dataclass(frozen=True)
class Settings:
    """Nothing of its own: kinds come with the prompts."""


DEFAULTS: dict[str, object] = {"limit": 8, "max_new_tokens": 96}
ALL = "all kinds"
MEDUSA = "Medusa"


def measure(setup: Setup, settings: Settings) -> Findings:
    """Greedy Medusa against plain decoding, one row a kind and one for all. Raises MedusaError."""
    from medusa_core.experiments.rows import make_row
    from medusa_core.experiments.setup import Findings

    engine = setup.engine
    nodes = medusa_draft(engine).tree("default").size
    logs = setup.interleave({PLAIN: setup.runner(engine, method="none"), MEDUSA: setup.runner(engine)})
    kinds = setup.places() | {ALL: range(len(setup.all_prompts))}
    rows = []
    for kind, places in kinds.items():
        base = logs[PLAIN].only(places)
        own = make_row(logs[MEDUSA].only(places), base, series=MEDUSA, label=kind, tree_nodes=nodes)
        rows += [own, make_row(base, base, series=PLAIN, label=kind, tree_nodes=1)]
    # The last row is that of all kinds.
    return Findings(
        rows, [f"{own.same_texts} of {len(setup.all_prompts)} texts are identical to plain decoding's."]
    )
