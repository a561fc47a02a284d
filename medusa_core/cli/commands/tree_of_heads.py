"""The trees that ``--tree`` calls auto and default, for the embedded heads on this machine."""

from __future__ import annotations

import sys

from medusa_core.cli.progress import load_for_runs
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import AUTO, medusa_draft
from medusa_core.evaluation.step_times import auto_tree_words
from medusa_core.loading.remembered import MEASURE_VARIABLE, may_measure
from medusa_core.trees.tree import Topology


def tree_of_heads(name: str) -> Topology:
    """The tree that a run with the embedded model takes; of auto a line on standard error says why."""
    config = GenerationConfig.of(method="medusa", tree=name)
    engine = load_for_runs(LoadConfig(), [config])
    draft = medusa_draft(engine)
    if name == AUTO:
        print(auto_tree_words(engine, config) if draft.fastest else _not_measured(), file=sys.stderr)
    return draft.tree(name)


def _not_measured() -> str:
    fix = "repeat it when the machine is idle" if may_measure() else f"unset {MEASURE_VARIABLE}"
    return f"note: no step times are measured, so auto is the default tree: {fix}"
