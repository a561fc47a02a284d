"""How long a decoding step takes against the number of nodes, measured with the engine's own loop.

Every size decodes the same texts in turn, so that a machine whose speed drifts treats all alike; the figures
are medians over rounds of the medians over steps. A tree is the best one of its size for the engine's
accuracies, since its depth says how many heads are asked. One node is plain decoding. Paper figure 4b.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from medusa_core.config import MOST_ROUNDS, TIMED_ROUNDS, TIMED_SIZES, GenerationConfig
from medusa_core.decoding import PhaseTimes
from medusa_core.engine import Engine
from medusa_core.engine.summary import PHASES
from medusa_core.errors import MedusaError, SettingError
from medusa_core.evaluation.head_accuracy import heads_of
from medusa_core.evaluation.limits import ROUND_TOKENS
from medusa_core.trees.budget import PLAIN, LatencyPoint
from medusa_core.trees.tree import MAX_NODES

_FIRST_STEPS = 1  # not counted: the first step of a run pays for what the prompt left in the caches


@dataclass(frozen=True)
class LatencyProgress:
    """After each run: how many of how many, the size just run, and the curve as far as it is known."""

    done: int
    total: int
    nodes: int
    latency: list[LatencyPoint]


@dataclass(frozen=True)
class _Sample:
    """What is kept of a step: its times and how many tokens it kept."""

    ms: PhaseTimes
    kept: int


@dataclass
class _SizeLog:
    """One tree size: its settings, and the counted steps of each round."""

    nodes: int
    config: GenerationConfig
    rounds: list[list[_Sample]] = field(default_factory=list)


def measure_latency(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    sizes: Sequence[int] = TIMED_SIZES,
    rounds: int = TIMED_ROUNDS,
    new_tokens: int = ROUND_TOKENS,
) -> Generator[LatencyProgress, None, None]:
    """Run every size once a round, prompt by prompt; the last record holds the whole curve.

    ``sizes`` count the root. A size for which the heads have too few guesses is left out. Raises MedusaError
    when there are no heads, no prompts, or a size is out of range.
    """
    logs = _logs(engine, prompts, sizes, rounds, new_tokens)
    for log in logs:  # first calls pay for allocation and kernel selection
        _counted_steps(engine, log, prompts[0])
    total = rounds * len(logs)
    for number in range(rounds):
        # Spread over all prompts, which may be sorted by kind of text.
        prompt = prompts[number * len(prompts) // rounds if len(prompts) > rounds else number % len(prompts)]
        for turn in range(len(logs)):
            log = logs[(turn + number) % len(logs)]
            log.rounds.append(_counted_steps(engine, log, prompt))
            points = [point for point in map(_point, logs) if point is not None]
            yield LatencyProgress(number * len(logs) + turn + 1, total, log.nodes, points)


def check_request(sizes: Sequence[int], rounds: int) -> None:
    """Raise MedusaError for sizes or rounds that cannot be measured, before anything is loaded."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise SettingError(f"rounds is {rounds}: give 1 to {MOST_ROUNDS}")
    if not sizes or min(sizes) < 1 or max(sizes) > MAX_NODES:
        raise MedusaError(f"sizes are {list(sizes)}: give 1 to {MAX_NODES} nodes, the root included")


def _logs(
    engine: Engine, prompts: Sequence[Sequence[int]], sizes: Sequence[int], rounds: int, new_tokens: int
) -> list[_SizeLog]:
    name, draft = heads_of(engine)
    check_request(sizes, rounds)
    if not prompts:
        raise MedusaError("there are no prompts to decode: give at least one")
    # End-of-text ends a run: what would follow is no text that heads have learned to foresee.
    tree_config = GenerationConfig(max_new_tokens=new_tokens, method=name)
    logs = []
    for size in sorted(set(sizes)):
        if size == PLAIN:
            logs.append(_SizeLog(size, tree_config.changed(method="none")))
            continue
        tree = draft.budget_tree(size - 1)
        if tree.size == size:
            logs.append(_SizeLog(size, tree_config.changed(tree=tree)))
    return logs


def _counted_steps(engine: Engine, log: _SizeLog, prompt: Sequence[int]) -> list[_Sample]:
    """The steps of one run that used the whole tree: near the end of the context a tree gets shallower."""
    return [
        _Sample(step.ms, len(step.verdict.path))
        for step in engine.stream(prompt, log.config)
        if step.index >= _FIRST_STEPS and step.tree.size == log.nodes
    ]


def _point(log: _SizeLog) -> LatencyPoint | None:
    """The figures of one size, None while it has no step."""
    rounds = [steps for steps in log.rounds if steps]
    if not rounds:
        return None
    totals = [_median(steps, "total") for steps in rounds]
    kept = [step.kept for steps in rounds for step in steps]
    return LatencyPoint(
        nodes=log.nodes,
        step_ms=round(statistics.median(totals), 4),
        step_ms_range=(round(min(totals), 4), round(max(totals), 4)),
        **{name: round(statistics.median(_median(steps, name) for steps in rounds), 4) for name in PHASES},
        tokens_per_step=round(statistics.mean(kept), 4),
        steps=len(kept),
    )


def _median(steps: Sequence[_Sample], phase: str) -> float:
    return statistics.median(getattr(step.ms, phase) for step in steps)
