"""How long a decoding step takes against the number of nodes, measured with the engine's own loop.

Every size decodes the same texts in turn, so that a machine whose speed drifts treats all alike; the figures
are medians over rounds of the medians over steps. A tree is the best one of its size for the engine's
accuracies, since its depth says how many heads are asked. One node is plain decoding. Paper figure 4b.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from medusa_core.config import MOST_ROUNDS, GenerationConfig
from medusa_core.decoding import PhaseTimes
from medusa_core.drafters import HeadsDraft
from medusa_core.engine import Engine
from medusa_core.engine.summary import PHASES
from medusa_core.errors import MedusaError, SettingError
from medusa_core.evaluation.head_accuracy import heads_of
from medusa_core.evaluation.turns import rotated
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


def measure_latency(
    engine: Engine, prompts: Sequence[Sequence[int]], sizes: Sequence[int], rounds: int, new_tokens: int
) -> Generator[LatencyProgress, None, None]:
    """Run every size once a round, prompt by prompt; the last record holds the whole curve.

    ``sizes`` count the root. A size for which the heads have too few guesses is left out. Raises MedusaError
    when there are no heads, or a size is out of range.
    """
    name, draft = heads_of(engine)
    check_request(sizes, rounds)
    # End-of-text ends a run: heads have not learned to predict what would follow.
    run = GenerationConfig(max_new_tokens=new_tokens, method=name)
    configs = runs_by_nodes(run, draft, sorted(set(sizes)))
    for nodes, config in configs.items():  # first calls pay for allocation and kernel selection
        _counted_steps(engine, nodes, config, prompts[0])
    samples: dict[int, list[list[_Sample]]] = {nodes: [] for nodes in configs}  # by round
    for number in range(rounds):
        # Spread over all prompts, which may be sorted by kind of text.
        prompt = prompts[number * len(prompts) // rounds if len(prompts) > rounds else number % len(prompts)]
        for turn, nodes in enumerate(rotated([*configs], number), start=1):
            if steps := _counted_steps(engine, nodes, configs[nodes], prompt):
                samples[nodes].append(steps)
            points = [_point(size, found) for size, found in samples.items() if found]
            yield LatencyProgress(number * len(configs) + turn, rounds * len(configs), nodes, points)


def check_request(sizes: Sequence[int], rounds: int) -> None:
    """Raise MedusaError for sizes or rounds that cannot be measured, before anything is loaded."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise SettingError(f"rounds is {rounds}: give 1 to {MOST_ROUNDS}")
    if not sizes or min(sizes) < 1 or max(sizes) > MAX_NODES:
        raise MedusaError(f"sizes are {list(sizes)}: give 1 to {MAX_NODES} nodes, the root included")


def runs_by_nodes(
    run: GenerationConfig, draft: HeadsDraft, sizes: Iterable[int]
) -> dict[int, GenerationConfig]:
    """The run by nodes: plain decoding, and the best tree of each size for which there are guesses."""
    found = {}
    for size in sizes:
        if size == PLAIN:
            found[size] = run.changed(method="none")
        elif (tree := draft.budget_tree(size - 1)).size == size:
            found[size] = run.changed(tree=tree)
    return found


def _counted_steps(
    engine: Engine, nodes: int, config: GenerationConfig, prompt: Sequence[int]
) -> list[_Sample]:
    """The steps of one run that used the whole tree: near the end of the context a tree gets shallower."""
    return [
        _Sample(step.ms, len(step.verdict.path))
        for step in engine.stream(prompt, config)
        if step.index >= _FIRST_STEPS and step.tree.size == nodes
    ]


def _point(nodes: int, rounds: Sequence[Sequence[_Sample]]) -> LatencyPoint:
    """The figures of one size, each round with a step at least."""
    totals = [_median(steps, "total") for steps in rounds]
    kept = [step.kept for steps in rounds for step in steps]
    return LatencyPoint(
        nodes=nodes,
        step_ms=round(statistics.median(totals), 4),
        step_ms_range=(round(min(totals), 4), round(max(totals), 4)),
        **{name: round(statistics.median(_median(steps, name) for steps in rounds), 4) for name in PHASES},
        tokens_per_step=round(statistics.mean(kept), 4),
        steps=len(kept),
    )


def _median(steps: Sequence[_Sample], phase: str) -> float:
    return statistics.median(getattr(step.ms, phase) for step in steps)
