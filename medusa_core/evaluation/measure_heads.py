"""Measure heads on a machine: how often they are right, and the time of a step by tree size.

The one measurement behind ``calibrate``, ``fit``, the Train tab and the Trees tab: each says how much it
wants and what ends it early. Paper §2.3.3 and figure 4b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import machine_record
from medusa_core.evaluation.head_accuracy import Accuracies, count_heads, heads_of
from medusa_core.evaluation.latency import measure_latency
from medusa_core.evaluation.limits import COUNTING, NO_LIMIT, TIMING, Effort, Limit
from medusa_core.trees.budget import LatencyPoint, best_tree
from medusa_core.trees.search import FoundTree


@dataclass(frozen=True)
class HeadMeasurement:
    """What is known so far; ``done`` of ``total`` prompts are counted, or runs are timed."""

    part: str  # COUNTING or TIMING
    done: int
    total: int
    accuracies: Accuracies
    nodes: int = 0  # size of the tree that was timed last
    rounds: int = 0  # in which every size had its turn
    latency: list[LatencyPoint] = field(default_factory=list)  # of these rounds

    @property
    def best_tree(self) -> FoundTree:
        """The tree that promises most here, or one of the usual size where no round is complete."""
        return best_tree(self.accuracies.shares, self.latency)

    def record(self, engine: Engine) -> dict[str, Any]:
        """The content of ``accuracies.json``."""
        record = {
            "base": engine.info.base,
            "positions": self.accuracies.positions,
            "accuracies": self.accuracies.shares,
        }
        if self.latency:
            record["latency"] = [point.model_dump(exclude_none=True) for point in self.latency]
        return record | {"machine": measured_on(engine)}


def measure_heads(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    effort: Effort,
    limit: Limit = NO_LIMIT,
    known: list[list[float]] | None = None,
) -> Iterator[HeadMeasurement]:
    """Count right guesses, unless they are ``known``, then time the best tree of each size.

    Stopped, it ends with what was measured by then. A part whose seconds are used up ends as soon as it has
    something to say: one prompt, or one round of all sizes. Raises MedusaError without heads or prompts.
    """
    if not prompts:
        raise MedusaError("there are no prompts to decode: give at least one")
    name, draft = heads_of(engine)
    if known is None:
        counting = limit.within(effort.seconds)
        for done, accuracies in enumerate(count_heads(engine, prompts, effort.counted_tokens), start=1):
            yield HeadMeasurement(COUNTING, done, len(prompts), accuracies)
            if counting.reached():
                break
    else:
        accuracies = Accuracies(known, 0)
    if not effort.rounds or limit.stopped:
        return
    # The trees to time are those that a search would choose for these accuracies.
    measured: Any = replace(cast("Any", draft), accuracies=accuracies.shares)
    engine = replace(engine, drafts={**engine.drafts, name: measured})
    found = HeadMeasurement(TIMING, 0, 0, accuracies)
    timing = limit.within(effort.seconds)
    runs = measure_latency(engine, prompts, effort.sizes, effort.rounds, effort.round_tokens)
    with closing(runs):
        for run in runs:
            found = replace(found, done=run.done, total=run.total, nodes=run.nodes)
            rounds, rest = divmod(run.done, run.total // effort.rounds)
            if not rest:
                found = replace(found, rounds=rounds, latency=run.latency)
            yield found
            if limit.stopped or (found.rounds and timing.reached()):
                break


def measured_on(engine: Engine) -> dict[str, Any]:
    """The machine, with the device and dtype of the model."""
    return machine_record(engine) | {"device": engine.info.device, "dtype": engine.info.dtype}
