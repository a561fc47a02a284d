"""Several methods run on the same prompts in turn, and what they did.

Methods (or trees, settings, engines: ``take_turns`` takes any) are interleaved prompt by prompt and their
order rotates, so that a machine whose speed drifts treats them alike. A round is all prompts once; the
figures of a method are medians over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.engine.summary import TIMES
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.evaluation.step_limits import MeanStep


@dataclass(frozen=True)
class Measurement:
    """One run of a method. ``seconds`` is the whole call, the reading of the prompt included."""

    tokens: list[int]
    seconds: float
    steps: int
    phase_ms: dict[str, float] = field(default_factory=dict)  # of all forwards; empty where it is not ours
    nodes: int = 0  # size of the largest tree, with the root
    rows: int = 0  # of all trees
    positions: int = 0  # committed before each step, summed
    cut: bool = False  # stopped before its end, so that it counts for nothing
    shared: int = 0  # forwards of several texts at once, each a step of them all; 0: one text, a step each

    @property
    def forwards(self) -> int:
        """Forwards of the model that had a tree to verify."""
        return self.shared or self.steps


T = TypeVar("T")
Runner = Callable[[list[int]], Measurement]


@dataclass
class MethodLog:
    """Measurements of one method by round."""

    rounds: list[list[Measurement]] = field(default_factory=list)

    @property
    def runs(self) -> list[Measurement]:
        """Those of all rounds."""
        return [run for of_round in self.rounds for run in of_round]

    @property
    def has_phases(self) -> bool:
        """Whether the method is ours, so that its steps were timed."""
        return bool(self.rounds[0][0].phase_ms)

    @property
    def nodes(self) -> int:
        """The size of the largest tree, with the root; 0 where the method is not ours."""
        return max(run.nodes for run in self.runs)

    def same_texts(self, base: MethodLog) -> int:
        """How many texts of the first round are those of another method."""
        pairs = zip(self.rounds[0], base.rounds[0], strict=True)
        return sum(own.tokens == other.tokens for own, other in pairs)

    def only(self, places: Iterable[int]) -> MethodLog:
        """The part that belongs to some of the prompts, by their places in a round."""
        chosen = list(places)
        return MethodLog([[r[place] for place in chosen] for r in self.rounds])

    def rates(self) -> list[float]:
        """End-to-end tokens per second of each round."""
        return [sum(len(m.tokens) for m in r) / sum(m.seconds for m in r) for r in self.rounds]

    def decode_rates(self) -> list[float]:
        """Tokens per second of each round by the time inside steps."""
        return [
            1000 * sum(len(m.tokens) for m in r) / sum(m.phase_ms["total"] for m in r) for r in self.rounds
        ]

    def tokens_per_step(self) -> float:
        """Over all rounds."""
        return sum(len(run.tokens) for run in self.runs) / sum(run.steps for run in self.runs)

    def whole_step(self) -> MeanStep:
        """The mean step: what it did and how long it took."""
        runs = self.runs
        steps = sum(run.steps for run in runs)
        return MeanStep(
            nodes=sum(run.rows for run in runs) / steps,
            positions=sum(run.positions for run in runs) / steps,
            accepted=self.tokens_per_step(),
            ms={phase: self.mean_step(phase) for phase in TIMES},
            runs=max(1, round(steps / sum(run.forwards for run in runs))),
        )

    def step_means(self, phase: str) -> list[float]:
        """The mean milliseconds of a step in a phase, by round."""
        return [sum(m.phase_ms[phase] for m in r) / sum(m.forwards for m in r) for r in self.rounds]

    def mean_step(self, phase: str) -> float:
        """Their median over the rounds."""
        return statistics.median(self.step_means(phase))


@dataclass(frozen=True)
class Turn:
    """After each run: whose it was, how many of how many, on which prompt, and all measurements so far."""

    name: str
    done: int
    total: int
    prompt: int  # its number in the round, from 1
    last: bool  # whether all have had their turn on this prompt
    logs: Mapping[str, MethodLog]


def take_turns(
    runners: Mapping[str, Runner],
    prompts: Sequence[list[int]],
    rounds: int,
    limit: Limit = NO_LIMIT,
    once: Sequence[str] = (),
    *,
    warm_up: bool = True,
    captured: bool = False,
) -> Iterator[Turn]:
    """Run every runner on every prompt, ``rounds`` times over; those in ``once`` in the first round only.

    The runners take turns prompt by prompt and the order rotates by one each time. Each is called beforehand,
    unmeasured, on the longest prompt; on every prompt where steps are ``captured`` as graphs, since a text's
    length decides which are recorded. Stopped, it ends before the next run; out of time, when all have had
    the prompt.
    """
    # First calls pay for allocation and kernel selection. Shorter prompts take over the longest one's memory.
    first = sorted({tuple(prompt): prompt for prompt in prompts}.values(), key=len, reverse=True)
    for prompt in first[: None if captured else 1] if warm_up else ():
        for run in runners.values():
            if limit.stopped:
                return
            run(prompt)
        if limit.reached():
            break
    logs = {name: MethodLog() for name in runners}
    done, total = 0, len(prompts) * (len(once) + rounds * (len(runners) - len(once)))
    for round_number in range(rounds):
        names = [name for name in runners if round_number == 0 or name not in once]
        for name in names:
            logs[name].rounds.append([])
        for number, prompt in enumerate(prompts):
            for turn, name in enumerate(rotated(names, round_number + number), start=1):
                if limit.stopped:
                    return
                found = runners[name](prompt)
                if found.cut:
                    return
                logs[name].rounds[-1].append(found)
                done += 1
                yield Turn(name, done, total, number + 1, turn == len(names), logs)
            if limit.reached():
                return


def measure_run(
    engine: Engine, prompt: list[int], config: GenerationConfig, limit: Limit = NO_LIMIT
) -> Measurement:
    """One timed run of our own loop. The limit cuts it between two steps where it says stop."""
    summary = engine.summary(config)
    with closing(engine.stream(prompt, config)) as steps:
        for step in steps:
            summary.add(step)
            if limit.stopped:
                break
    return Measurement(
        summary.token_ids,
        summary.elapsed,
        summary.steps,
        summary.phase_ms,
        summary.nodes,
        summary.rows,
        summary.positions,
        cut=summary.finish_reason is None,
    )


def complete_part(logs: Mapping[str, MethodLog]) -> dict[str, MethodLog]:
    """The part that all methods have run: the complete rounds, or else the prompts of the first one.

    Empty while some method has not had its turn.
    """
    rounds = max((len(log.rounds) for log in logs.values()), default=0)
    shared = [min(len(log.rounds[place]) for log in logs.values()) for place in range(rounds)]
    if not shared or not shared[0]:
        return {}
    counts = [count for count in shared if count == shared[0]]
    return {
        name: MethodLog([log.rounds[place][:count] for place, count in enumerate(counts)])
        for name, log in logs.items()
    }


def rotated(names: list[T], by: int) -> list[T]:
    """The same, begun so many places later."""
    shift = by % len(names)
    return names[shift:] + names[:shift]
