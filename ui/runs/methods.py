"""All methods that a model can run on one prompt, timed in turn: tokens and milliseconds a step of each.

Greedy, so that all of them write the same text and only their ways to it are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters import options_in_use
from medusa_core.errors import MedusaError
from ui.records.lanes import PLAIN_METHOD
from ui.records.method_choice import page_methods
from ui.records.selection import DEFAULT, YOURS, Selection
from ui.records.settings import RunSettings, check_prompt, make_config
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount
from ui.runs.compare import MOST_REPETITIONS, NOTE_SECONDS, WARM_UP_TOKENS
from ui.runs.ready import ready
from ui.runs.verdict import run_order
from ui.serving.engines import Engines
from ui.serving.runner import Request

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.summary import RunSummary


@dataclass(frozen=True)
class MethodRuns:
    """The complete runs of one method. Rates count the time inside steps, as in a comparison."""

    name: str
    tokens: int
    steps: int
    nodes: int  # size of the largest tree, the root included
    step_ms: tuple[float, ...]  # mean of each run
    phase_ms: Mapping[str, float]  # means over all runs
    same_text: bool  # as plain decoding's
    options: Mapping[str, Any] = field(default_factory=dict)  # settings and tree of its drafters

    @property
    def tokens_per_step(self) -> float:
        """The same in every run, since all are greedy."""
        return self.tokens / self.steps

    @property
    def median_ms(self) -> float:
        """Of a step."""
        return statistics.median(self.step_ms)

    def rates(self) -> list[float]:
        """Tokens per second of each run."""
        return [1000 * self.tokens_per_step / milliseconds for milliseconds in self.step_ms]

    def figures(self, plain: MethodRuns) -> dict[str, Any]:
        """As they stand in a record of ``bench``; ``plain`` is plain decoding in the same rounds."""
        ratios = [own / other for own, other in zip(self.rates(), plain.rates(), strict=True)]
        return {
            **_with_range("tokens_per_second", self.rates()),
            "tokens_per_step": self.tokens_per_step,
            "new_tokens": self.tokens * len(self.step_ms),
            "tree_nodes": self.nodes,
            "step_ms": self.median_ms,
            "phase_ms": dict(self.phase_ms),
            **_with_range("speedup", ratios),
            "overhead": self.median_ms / plain.median_ms,
            "identical_outputs": f"{int(self.same_text)} of 1",
        }


@dataclass(frozen=True)
class MethodsUpdate(Update):
    """After each complete round: all methods as they are known so far."""

    methods: tuple[MethodRuns, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)  # as ``bench`` writes it
    note: str = ""  # what the runs shared beside the prompt


@dataclass(frozen=True)
class MethodsRequest(Request):
    """A prompt to be continued by every method, ``repetitions`` times each."""

    prompt: str
    max_new_tokens: float
    repetitions: int
    visitor: Selection = field(default_factory=Selection)
    penalty: float = GenerationConfig.penalty
    penalty_window: float = GenerationConfig.penalty_window

    @property
    def selection(self) -> Selection:
        """What the visitor has chosen."""
        return self.visitor

    def most_tokens(self) -> float:
        """Of all methods together. Raises MedusaError for a prompt or settings beyond the page's limits."""
        check_prompt(self.prompt)
        if not 1 <= self.repetitions <= MOST_REPETITIONS:
            raise MedusaError(f"{self.repetitions} runs of each asked for: choose 1 to {MOST_REPETITIONS}")
        config = make_config(self._settings(PLAIN_METHOD))
        return self.repetitions * config.max_new_tokens * len(page_methods())

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """Warm up, then round after round; what is complete when it is stopped stays."""
        engine, plain = yield from ready(engines, self._settings(PLAIN_METHOD))
        configs = {PLAIN_METHOD: plain}
        for name in (one for one in page_methods() if one in engine.methods()):
            configs[name] = (yield from ready(engines, self._settings(name)))[1]
        ids = engine.encode(self.prompt)
        for name, config in configs.items():
            short = replace(config, max_new_tokens=min(WARM_UP_TOKENS, config.max_new_tokens))
            yield from _timed(engine, short, ids, Words("Warming up: {0}", name), flag)
            if flag.stopped:
                break
        note = ""
        if plain.penalises:
            words = amount(plain.penalty_window, "token")
            note = Words("All runs had a penalty of {0} on the last {1}.", f"{plain.penalty:g}", words)
        options = {name: options_in_use(engine.drafts, config) for name, config in configs.items()}
        runs: dict[str, list[RunSummary]] = {name: [] for name in configs}
        order = [list(configs)[place] for place in run_order(len(configs), self.repetitions)]
        for place, name in enumerate(order, start=1):
            if not flag.stopped:
                label = Words("Timing {0}, run {1} of {2}", name, len(runs[name]) + 1, self.repetitions)
                runs[name].append((yield from _timed(engine, configs[name], ids, label, flag)))
            if flag.stopped:
                yield Update(status=_stopped(place > len(configs)))
                return
            if place % len(configs) == 0:
                found = _found(runs, options)
                yield MethodsUpdate(
                    status=_measured(place == len(order)), methods=found,
                    record=_record(engine, found, plain.max_new_tokens), note=note,
                )  # fmt: skip

    def _settings(self, name: str) -> RunSettings:
        return RunSettings(
            acceptance=GenerationConfig.acceptance,
            temperature=0.0,
            max_new_tokens=self.max_new_tokens,
            heads=YOURS if self.visitor.engine else DEFAULT,
            method=name,
            selection=self.visitor,
            penalty=self.penalty,
            penalty_window=self.penalty_window,
        )


def _timed(
    engine: Engine, config: GenerationConfig, ids: list[int], label: str, flag: StopFlag
) -> Generator[Update, None, RunSummary]:
    """One run; returns what it adds up to. Notes go out between two steps, so they are not in the times."""
    summary, noted = engine.summary(config), 0.0
    with closing(engine.stream(ids, config)) as steps:
        for step in steps:
            summary.add(step)
            if perf_counter() - noted > NOTE_SECONDS:
                noted = perf_counter()
                yield Update(status=Words("{0}: {1}", label, amount(len(summary.token_ids), "token")))
            if flag.stopped:
                break
    return summary


def _found(
    runs: dict[str, list[RunSummary]], options: Mapping[str, Mapping[str, Any]]
) -> tuple[MethodRuns, ...]:
    text = runs[PLAIN_METHOD][0].token_ids
    return tuple(
        MethodRuns(
            name=name,
            tokens=len(of_method[0].token_ids),
            steps=of_method[0].steps,
            nodes=of_method[0].nodes,
            step_ms=tuple(1000 * run.seconds / run.steps for run in of_method),
            phase_ms={
                phase: sum(run.phase_ms[phase] for run in of_method) / steps
                for phase in of_method[0].phase_ms
                if phase != "total"
            },
            same_text=of_method[0].token_ids == text,
            options=options[name],
        )
        for name, of_method in runs.items()
        for steps in [sum(run.steps for run in of_method)]
    )


def _record(engine: Engine, methods: Sequence[MethodRuns], most_tokens: int) -> dict[str, Any]:
    from medusa_core.evaluation.bench import machine_record, model_record  # noqa: PLC0415 - transformers

    plain = methods[0]
    return {
        "machine": machine_record(engine),
        "model": model_record(engine),
        "settings": {"prompts": 1, "runs": len(plain.step_ms), "max_new_tokens": most_tokens},
        "methods": {one.name: one.figures(plain) for one in methods},
    }


def _with_range(key: str, values: Sequence[float]) -> dict[str, Any]:
    return {key: statistics.median(values), f"{key}_range": [min(values), max(values)]}


def _measured(whole: bool) -> str:
    return Words("Measured.") if whole else Words("Measured once; the next round refines it.")


def _stopped(some: bool) -> str:
    if some:
        return Words("Stopped: what is shown is of the rounds that were complete.")
    return Words("Stopped before each method had its turn: nothing is shown rather than half of it.")
