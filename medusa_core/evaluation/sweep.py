"""The time of a step while one quantity varies: nodes of the tree, length of the text, batch or dtype.

Each value is a ``Case`` that is run once a round; the cases take turns, so that a machine whose speed drifts
treats them alike, and the figures are medians over rounds. A step of a batch is one forward of all its runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME, medusa_draft
from medusa_core.engine import Engine
from medusa_core.engine.summary import PHASES, TIMES
from medusa_core.errors import MedusaError, counted
from medusa_core.evaluation.bench import machine_record, model_record
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.evaluation.other_work import OtherWork
from medusa_core.evaluation.step_limits import Ceilings, step_limits
from medusa_core.evaluation.turns import Measurement, MethodLog, Runner, Turn, take_turns
from medusa_core.trees.search import expected_lengths
from medusa_core.trees.tree import Topology

PLAIN = "none"
NODES, CONTEXT, BATCH, DTYPE = "nodes", "context", "batch", "dtype"
VALUES = {
    NODES: (1, 2, 4, 8, 16, 32, 64),
    CONTEXT: (128, 256, 512, 1024, 2048, 4096, 8192),
    BATCH: (1, 2, 4, 8),
}
_DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
_CONTEXT_TOKENS = 24  # written after a text of a given length, which hardly grows by them


@dataclass(frozen=True)
class Case:
    """One value of what is swept, and the runs that are timed for it."""

    value: int | str
    engine: Engine
    config: GenerationConfig
    prompts: Sequence[Sequence[int]]
    batch: int = 1


def cases_of(
    sweep: str,
    engine: Engine,
    methods: Sequence[str],
    config: GenerationConfig,
    prompts: Sequence[Sequence[int]],
    values: Sequence[int],
) -> list[Case]:
    """The cases of one engine. Raises MedusaError for values that it cannot have."""
    if sweep == NODES:
        return [Case(size, engine, _with_nodes(engine, config, size), prompts) for size in values]
    runs = [config.changed(method=name) for name in methods]
    if sweep == CONTEXT:
        return [
            Case(length, engine, run.changed(max_new_tokens=_CONTEXT_TOKENS, ignore_eos=True), [text])
            for length in values
            for text in [text_of_length(engine, prompts, length)]
            for run in runs
        ]
    if sweep == BATCH:
        return [Case(size, engine, run, prompts, size) for size in values for run in runs]
    return [Case(engine.info.dtype, engine, run, prompts) for run in runs]


def text_of_length(engine: Engine, prompts: Sequence[Sequence[int]], length: int) -> list[int]:
    """The prompts behind each other, over and over, cut to ``length`` tokens. Raises MedusaError."""
    if length + _CONTEXT_TOKENS > engine.target.context:
        raise MedusaError(
            f"a text of {length} tokens and {_CONTEXT_TOKENS} more do not fit: {engine.target.context_words}"
        )
    words = [token for prompt in prompts for token in prompt]
    return (words * (length // len(words) + 1))[:length]


def fitting(sweep: str, engine: Engine, values: Sequence[int]) -> tuple[list[int], str]:
    """The usual values that the engine can have, and a sentence on the others, which are larger."""
    target = engine.target
    if sweep == CONTEXT:
        kept = [value for value in values if value + _CONTEXT_TOKENS <= target.context]
        note = f" ({target.context_note})" if target.context_note else ""
        what, why = (
            "Texts of {:,} tokens",
            f"with the new ones they would not fit the context of {target.context:,}{note}",
        )
    elif sweep == NODES:
        kept = [value for value in values if value == 1 or _tree(engine, value) is not None]
        what, why = "Trees of {:,} nodes", "the heads have no more guesses"
    else:
        return list(values), ""
    left = [value for value in values if value not in kept]
    return kept, f"{what.format(min(left))} and more are left out: {why}." if left else ""


class Sweep:
    """A measurement of cases: ``turns`` makes it, ``points`` has what is known so far."""

    def __init__(self, cases: Sequence[Case], rounds: int) -> None:
        self._cases = {f"{case.value} {case.config.method}": case for case in cases}
        self._rounds = rounds
        self._logs: Mapping[str, MethodLog] = {}
        self._ceilings = {id(case.engine): Ceilings(case.engine) for case in cases}

    def turns(self, limit: Limit = NO_LIMIT) -> Iterator[Turn]:
        """Each case once unmeasured, then all in turn, round after round. Raises MedusaError.

        Where steps are captured as graphs the unmeasured run has all prompts, as in ``take_turns``.
        """
        for case in self._cases.values():
            captured = case.engine.target.choice.captured
            if _run(case, case.prompts[: None if captured else case.batch], limit).cut:
                return

        def runner(case: Case) -> Runner:
            return lambda _: _run(case, case.prompts, limit)

        runners = {name: runner(case) for name, case in self._cases.items()}
        # Each case has prompts of its own, which it writes in one run.
        for turn in take_turns(runners, [[]], self._rounds, limit, warm_up=False):
            self._logs = turn.logs
            yield turn

    def points(self) -> list[dict[str, Any]]:
        """A record for each case that was measured, in their order.

        The first call also measures what the machine can do at best.
        """
        records = []
        for name, case in self._cases.items():
            if rounds := [found for found in self._logs.get(name, MethodLog()).rounds if found]:
                records.append(_record(case, MethodLog(rounds), self._ceilings[id(case.engine)]))
        return list(_with_gains(records))


def measure_cases(
    cases: Sequence[Case],
    rounds: int,
    progress: Callable[[Turn], None] = lambda turn: None,
) -> list[dict[str, Any]]:
    """The points of a whole ``Sweep``; ``progress`` is called after each run. Raises MedusaError."""
    sweep = Sweep(cases, rounds)
    for turn in sweep.turns():
        progress(turn)
    return sweep.points()


def sweep_record(
    engine: Engine, sweep: str, points: Sequence[dict[str, Any]], notes: Sequence[str], others: OtherWork
) -> dict[str, Any]:
    """What ``bench --sweep --json`` prints of points; ``engine`` is the last of those that were measured."""
    return {
        "machine": machine_record(engine) | others.record(),
        "model": model_record(engine) | ({"dtype": "swept"} if sweep == DTYPE else {}),
        "sweep": sweep,
        "points": list(points),
        "notes": list(notes),
    }


def swept_dtypes(device: str) -> tuple[str, ...]:
    """The dtypes that are compared on a kind of device."""
    return _DTYPES.get(device, ("float32", "float16"))


def filling(prompts: Sequence[list[int]], batch: int) -> list[list[int]]:
    """The prompts, repeated until batches of that size are full."""
    return [*prompts] * -(-2 * batch // len(prompts)) if batch else [*prompts]


def simulated(case: Case, record: dict[str, Any], accuracies: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Tokens per step and per second that heads of these accuracies would make with this tree.

    They stand for what a model with random weights cannot show.
    """
    tree = case.engine.fixed_tree(case.config) if case.config.method != PLAIN else None
    length = expected_lengths(accuracies, tree.choices)[-1] if tree is not None else 1.0
    return {
        "simulated_tokens_per_step": round(length, 3),
        "simulated_tokens_per_second": round(1000 * case.batch * length / record["step_ms"], 2),
    }


def _with_nodes(engine: Engine, config: GenerationConfig, size: int) -> GenerationConfig:
    if size == 1:
        return config.changed(method=PLAIN)
    tree = _tree(engine, size)
    if tree is None:
        raise MedusaError(f"{counted(size, 'node')} are more than the heads have guesses for: lower them")
    return config.changed(method=NAME, tree=tree)


def _tree(engine: Engine, size: int) -> Topology | None:
    """The best tree of that size, None where the heads have too few guesses."""
    tree = medusa_draft(engine).budget_tree(size - 1)
    return tree if tree.size == size else None


def _run(case: Case, prompts: Sequence[Sequence[int]], limit: Limit) -> Measurement:
    """The case once, on these prompts. The runs of a batch share the times of their step."""
    tokens: list[int] = []
    steps = forwards = rows = positions = 0
    phase_ms, last = dict.fromkeys(TIMES, 0.0), None
    begun = perf_counter()
    with closing(case.engine.stream_batch(prompts, case.config, case.batch)) as made:
        for _, step in made:
            if limit.stopped:
                return Measurement(tokens, perf_counter() - begun, steps, cut=True)
            tokens += step.emitted
            steps += 1
            rows += step.tree.size
            positions += step.cache_length
            if step.ms is not last:
                last = step.ms
                forwards += 1
                for phase in TIMES:
                    phase_ms[phase] += getattr(last, phase)
    seconds = perf_counter() - begun
    return Measurement(tokens, seconds, steps, phase_ms, rows=rows, positions=positions, shared=forwards)


def _record(case: Case, log: MethodLog, ceilings: Ceilings) -> dict[str, Any]:
    step, rates, means = log.whole_step(), log.rates(), log.step_means("total")
    return {
        "value": case.value,
        "method": case.config.method,
        "batch": case.batch,
        "nodes": round(step.nodes, 2),
        "context": round(step.positions, 1),
        "step_ms": round(step.ms["total"], 3),
        "step_ms_range": [round(min(means), 3), round(max(means), 3)],
        "phase_ms": {phase: round(step.ms[phase], 3) for phase in PHASES},
        "tokens_per_step": round(step.accepted, 3),
        "tokens_per_second": round(statistics.median(rates), 2),
        "tokens_per_second_range": [round(min(rates), 2), round(max(rates), 2)],
    } | step_limits(case.engine, case.config, step, ceilings)


def _with_gains(records: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """``gain``: tokens per second over plain decoding's at the same value, ``over_first``: over the first.

    In a sweep of nodes, plain decoding is the tree of one.
    """
    plain = {one["value"]: one["tokens_per_second"] for one in records if one["method"] == PLAIN}
    first: dict[str, float] = {}
    for one in records:
        own = one["tokens_per_second"]
        found = dict(one)
        if base := plain.get(one["value"], plain.get(1)):
            found["gain"] = round(own / base, 3)
        found["over_first"] = round(own / first.setdefault(one["method"], own), 3)
        yield found
