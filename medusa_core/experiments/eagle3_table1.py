"""Table 1 of EAGLE-3: drafters side by side at T = 0 and T = 1, without loss (arXiv 2503.01840, §4.1).

The paper compares EAGLE-3 with a draft model, prompt lookup, Medusa, Hydra and others on large chat models.
Here those run that the loaded weights allow, each with a rule that keeps the model's distribution: `match` at
temperature 0, `rejection` above it. Each runs with the settings its weights bring for this machine, or the
drafter's defaults, and those with weights once more with trees of the same sizes: heads fill the best tree of
that many nodes for their accuracies, the others grow one as EAGLE-3's public code does. Medusa's heads fill a
dynamic tree too, so that what the heads know is told from what the tree makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa_core.config import setting, whole_numbers
from medusa_core.drafters import HeadsDraft, method
from medusa_core.drafters._head_trees import DYNAMIC
from medusa_core.errors import MedusaError, counted
from medusa_core.trees.tree import MAX_NODES

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.experiments.record import Row
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "Drafters without loss, at two temperatures"
PUBLIC_TREE = {"draft_top_k": 10, "draft_depth": 8}  # §4: depth 8, with EAGLE-2's ten guesses


@dataclass(frozen=True)
class Settings:
    """The temperatures and the sizes that are compared."""

    temperatures: str = setting("0,1", "temperatures from 0 to 2, with commas between them")
    nodes: str = setting("16,60", "sizes of trees that all drafters fill, the root counted")


DEFAULTS: dict[str, object] = {"limit": 3, "max_new_tokens": 96, "rounds": 2}
QUICK: dict[str, object] = {"nodes": "4"}
COMPARED = ("lookup", "draft_model", "medusa", "hydra", "eagle3")  # the paper's methods that exist here
NEWEST = COMPARED[-1]


def measure(setup: Setup, settings: Settings) -> Findings:
    """Runs of all methods in turns, one temperature after the other. Raises MedusaError."""
    from medusa_core.evaluation.bench import BASELINE
    from medusa_core.experiments.rows import make_row
    from medusa_core.experiments.setup import Findings

    temperatures = read_temperatures(settings.temperatures)
    series = series_of(setup.engine, settings.nodes)
    rows: list[Row] = []
    for temperature in temperatures:
        rule = "rejection" if temperature > 0 else "match"
        shared: dict[str, Any] = {"temperature": temperature, "acceptance": rule}
        logs = setup.interleave(
            {name: setup.runner(setup.engine, **(shared | own)) for name, own in series.items()}
        )
        label = f"T = {temperature:g}"
        for name, log in logs.items():
            rows.append(make_row(log, logs[BASELINE], series=name, label=label, tree_nodes=log.nodes))
    return Findings(rows, [*ratios(rows), _most(rows)])


def read_temperatures(text: str) -> list[float]:
    """The numbers of a comma-separated setting, each once. Raises MedusaError unless they are 0 to 2."""
    try:
        found = list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        found = []
    if not found or not all(0 <= temperature <= 2 for temperature in found):
        raise MedusaError(f"--temperatures is {text!r}: give numbers from 0 to 2, as in 0,0.7,1")
    return found


def series_of(engine: Engine, nodes: str) -> dict[str, dict[str, Any]]:
    """The settings of its own for each series. Raises MedusaError where nothing can be compared."""
    from medusa_core.drafters.medusa import NAME as MEDUSA
    from medusa_core.evaluation.bench import BASELINE

    known = [name for name in COMPARED if name in engine.methods()]
    trained = [name for name in known if method(name).has_weights]
    if not trained:
        raise MedusaError("no weights of a drafter are loaded: name some with --heads")
    series: dict[str, dict[str, Any]] = {BASELINE: {"method": BASELINE, "acceptance": "match"}}
    series |= {name: {"method": name} for name in known}
    for size in sorted({*whole_numbers(nodes, "nodes", 2, MAX_NODES)}):
        for name in trained:
            draft = engine.drafts[name]
            shape: dict[str, Any] = PUBLIC_TREE | {"draft_nodes": size - 1}
            if isinstance(draft, HeadsDraft):
                shape = {"tree": draft.budget_tree(size - 1)}
            sized = f"{name}, {counted(size, 'node')}"
            series[sized] = {"method": name, **shape}
            if name == MEDUSA:
                series[f"{sized}, dynamic"] = {"method": name, "tree": f"{DYNAMIC}{size}"}
    return series


def ratios(rows: list[Row]) -> list[str]:
    """A sentence for each size: EAGLE-3's tokens per step over the others' with trees of that size."""
    kept: dict[str, dict[str, dict[str, float]]] = {}  # by size, label and method
    for row in rows:
        name, _, size = row.series.partition(", ")
        if size:
            kept.setdefault(size, {}).setdefault(row.label, {})[name] = row.tokens_per_step.mean
    return [
        f"EAGLE-3's tokens per step over others' with {size}: "
        f"{'; '.join(_times(label, by_method) for label, by_method in of_size.items())}."
        for size, of_size in kept.items()
        if all(NEWEST in by_method and len(by_method) > 1 for by_method in of_size.values())
    ]


def _times(label: str, kept: dict[str, float]) -> str:
    others = [f"{name} {kept[NEWEST] / value:.2f}" for name, value in kept.items() if name != NEWEST]
    return f"{label}: {', '.join(others)}"


def _most(rows: list[Row]) -> str:
    """The series with most tokens a step and the one with most tokens a second, by temperature."""
    found = []
    for label in dict.fromkeys(row.label for row in rows):
        of_label = [row for row in rows if row.label == label]
        kept = max(of_label, key=lambda row: row.tokens_per_step.mean)
        fast = max(of_label, key=lambda row: row.tokens_per_second.median)
        found.append(f"{label}: {kept.series} keeps most tokens a step, {fast.series} is fastest")
    return f"{'; '.join(found)}."
