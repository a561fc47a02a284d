"""Measures figure 5; what it is and its settings are in the package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from medusa_core.config import NO_HEADS, GenerationConfig
from medusa_core.drafters._options import check_options
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import MethodLog
from medusa_core.experiments.figure5 import QUALITY, Settings
from medusa_core.experiments.quality import require_same_tokens, right_sums, written_quality
from medusa_core.experiments.rows import distinct_share, make_row
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.loading.load import load_engine

GREEDY, RANDOM = "greedy", "random sampling"
TYPICAL, SAMPLED_ROOT = "typical, greedy root", "typical, sampled root"


@dataclass(frozen=True)
class Point:
    """One setting; one that draws nothing at random needs no second seed."""

    series: str
    label: str
    epsilon: float | None
    changes: Mapping[str, Any]
    random: bool


def measure(setup: Setup, settings: Settings) -> Findings:
    """Every setting on every prompt; a round is a seed of the settings that draw. Raises MedusaError."""
    engine = setup.engine
    nodes = medusa_draft(engine).tree("default").size
    points = sweep(read_epsilons(settings.epsilons), settings.temperature)
    judge, words = load_judge(setup, settings.judge)
    seeds = range(setup.run.rounds)
    runners = {
        f"{point.label}, seed {seed}": setup.runner(engine, seed=seed, **point.changes)
        for point in points
        for seed in (seeds if point.random else [0])
    }
    logs = setup.interleave(runners, rounds=1)
    rows = []
    for point in points:
        of_seeds = [log for name, log in logs.items() if name.startswith(f"{point.label}, seed ")]
        log = MethodLog([texts for log in of_seeds for texts in log.rounds])
        row = make_row(log, series=point.series, label=point.label, x=point.epsilon, tree_nodes=nodes)
        quality = written_quality(judge.target, setup.all_prompts, log)
        distinct = distinct_share(log.runs)
        sums = right_sums(engine, log)
        rows.append(row.model_copy(update={"quality": quality, "distinct": distinct, "right_sums": sums}))
    notes = [
        "Likelihood rewards likely text, so greedy decoding stands high on it by construction, not because "
        "people would prefer it; the share of three-token pieces that do not repeat tells the other side.",
        "With a greedy root, as in the paper, typical acceptance draws nothing at random: one run a prompt.",
    ]
    return Findings(rows, notes, f"{QUALITY}; the judge is {words}")


def sweep(epsilons: list[float], temperature: float) -> list[Point]:
    """The settings: two references, then each ε with both ways to choose the root."""
    warm: dict[str, Any] = {"temperature": temperature}
    points = [
        Point(GREEDY, GREEDY, None, {"temperature": 0.0}, random=False),
        Point(RANDOM, RANDOM, None, warm, random=True),
    ]
    for series, root in ((TYPICAL, "argmax"), (SAMPLED_ROOT, "sample")):
        for epsilon in epsilons:
            typical = {"acceptance": "typical", "epsilon": epsilon, "delta": round(math.sqrt(epsilon), 6)}
            label = f"{series}, ε = {epsilon:g}"
            points.append(Point(series, label, epsilon, warm | typical | {"root": root}, root == "sample"))
    return points


def read_epsilons(text: str) -> list[float]:
    """Thresholds from "0.01,0.09". Raises MedusaError for a number outside the setting's range."""
    try:
        epsilons = sorted({float(part) for part in text.split(",")})
    except ValueError as error:
        raise MedusaError(f"--epsilons is {text!r}: write numbers, as in 0.01,0.09,0.25") from error
    for epsilon in epsilons:
        check_options(GenerationConfig(options={"epsilon": epsilon}))
    return epsilons


def load_judge(setup: Setup, name: str) -> tuple[Engine, str]:
    """The judge, in float32, and what to call it. Raises MedusaError when it has another vocabulary."""
    # Without heads also means without their adapter: the model as it was before Medusa-2.
    load = replace(setup.load, model=name or setup.load.model, heads=NO_HEADS, dtype="float32")
    judge = load_engine(load)
    require_same_tokens(judge, setup.engine)
    if name:
        return judge, f"{judge.info.base} in float32"
    return judge, f"the base model {judge.info.base} itself, without heads, in float32"
