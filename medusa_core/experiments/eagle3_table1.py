"""Table 1 of EAGLE-3: drafters side by side at T = 0 and T = 1, without loss (arXiv 2503.01840, §4.1).

The paper compares EAGLE-3 with a draft model, prompt lookup, Medusa, Hydra and others on large chat models.
Here those run that the loaded weights allow, each with a rule that keeps the model's distribution: `match` at
temperature 0, `rejection` above it. EAGLE-3 runs twice: with the settings its weights bring for this machine
or the drafter's defaults, and with the public tree, which a GPU verifies in about the time of one token.
So does Medusa, whose second tree has as many nodes: tokens per step compare where trees are of one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa_core.config import setting
from medusa_core.drafters import TunedDraft, method
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.experiments.record import Row
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "Drafters without loss, at two temperatures"
QUALITY = None
PUBLIC_TREE = {"draft_top_k": 10, "draft_depth": 8, "draft_nodes": 59}  # §4: depth 8, with EAGLE-2's 60 nodes


@dataclass(frozen=True)
class Settings:
    """The temperatures that are compared."""

    temperatures: str = setting("0,1", "temperatures from 0 to 2, with commas between them")


DEFAULTS: dict[str, object] = {"limit": 3, "max_new_tokens": 96, "rounds": 2}
QUICK: dict[str, object] = {}
COMPARED = ("lookup", "draft_model", "medusa", "hydra", "eagle3")  # the paper's methods that exist here
NEWEST = COMPARED[-1]


def measure(setup: Setup, settings: Settings) -> Findings:
    """Runs of all methods in turns, one temperature after the other. Raises MedusaError."""
    from medusa_core.evaluation.bench import BASELINE
    from medusa_core.experiments.rows import make_row
    from medusa_core.experiments.setup import Findings

    temperatures = read_temperatures(settings.temperatures)
    series = series_of(setup.engine)
    rows: list[Row] = []
    for temperature in temperatures:
        rule = "rejection" if temperature > 0 else "match"
        shared: dict[str, Any] = {"temperature": temperature, "acceptance": rule}
        logs = setup.interleave(
            {name: setup.runner(setup.engine, **(shared | own)) for name, own in series.items()}
        )
        label = f"T = {temperature:g}"
        for name, log in logs.items():
            nodes = max(run.nodes for runs in log.rounds for run in runs)
            rows.append(make_row(log, logs[BASELINE], series=name, label=label, tree_nodes=nodes))
    return Findings(rows, [_ratios(rows), _most(rows)])


def read_temperatures(text: str) -> list[float]:
    """The numbers of a comma-separated setting, each once. Raises MedusaError unless they are 0 to 2."""
    try:
        found = list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        found = []
    if not found or not all(0 <= temperature <= 2 for temperature in found):
        raise MedusaError(f"--temperatures is {text!r}: give numbers from 0 to 2, as in 0,0.7,1")
    return found


def series_of(engine: Engine) -> dict[str, dict[str, Any]]:
    """What a run of each series has of its own. Raises MedusaError where nothing can be compared."""
    from medusa_core.evaluation.bench import BASELINE

    known = engine.methods()
    series: dict[str, dict[str, Any]] = {BASELINE: {"method": BASELINE, "acceptance": "match"}}
    series |= {name: {"method": name} for name in COMPARED if name in known}
    draft = engine.drafts.get(NEWEST)
    if isinstance(draft, TunedDraft) and draft.settings not in ({}, PUBLIC_TREE):
        series[f"{NEWEST}, public tree"] = {"method": NEWEST, **PUBLIC_TREE}
        if MEDUSA in engine.drafts:
            tree = medusa_draft(engine).budget_tree(PUBLIC_TREE["draft_nodes"])
            series[f"{MEDUSA}, {tree.size} nodes"] = {"method": MEDUSA, "tree": tree}
    if not any(method(name).has_weights for name in series if name in known):
        raise MedusaError("no weights of a drafter are loaded: name some with --heads")
    return series


def _ratios(rows: list[Row]) -> str:
    """EAGLE-3's tokens per step over those of Medusa's tree that is nearest in size, for each temperature."""
    found = []
    for label in dict.fromkeys(row.label for row in rows):
        of_label = [row for row in rows if row.label == label]
        medusas = [row for row in of_label if row.series.startswith(MEDUSA)]
        for row in of_label:
            if row.series.startswith(NEWEST) and medusas:
                nodes = row.tree_nodes or 1
                other = min(medusas, key=lambda one: abs((one.tree_nodes or 1) - nodes))
                times = row.tokens_per_step.mean / other.tokens_per_step.mean
                found.append(f"{label}, {row.series}: {times:.2f} ({nodes} nodes against {other.tree_nodes})")
    return f"Tokens per step over Medusa's: {'; '.join(found) or 'no such weights'}."


def _most(rows: list[Row]) -> str:
    """The series with most tokens a step and the one with most tokens a second, by temperature."""
    found = []
    for label in dict.fromkeys(row.label for row in rows):
        of_label = [row for row in rows if row.label == label]
        kept = max(of_label, key=lambda row: row.tokens_per_step.mean)
        fast = max(of_label, key=lambda row: row.tokens_per_second.median)
        found.append(f"{label}: {kept.series} keeps most tokens a step, {fast.series} is fastest")
    return f"{'; '.join(found)}."
