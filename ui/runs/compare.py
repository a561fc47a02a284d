"""Timed runs for a comparison: one after the other, with a note to the page now and then.

The clock runs inside the engine's steps; notes go out between two steps, so they are not in the times.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters import method
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.other_work import OtherWork
from ui.records.lanes import PLAIN_METHOD, SecondLane, lane_names, what_counts
from ui.records.messages import lane, race_message, status_message
from ui.records.settings import YOURS, RunSettings, check_prompt, make_config
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount, sentences
from ui.runs import verdict as comparison
from ui.runs.decode import SettingsRequest, ready
from ui.runs.other_work import busy_words, let_browser_draw
from ui.serving.engines import Engines

if TYPE_CHECKING:
    from medusa_core.drafters import Draft
    from medusa_core.engine import Engine

FASTEST_TREE = "Medusa’s tree “auto” has {0} nodes here, the fastest by the times of its steps."
UNTIMED_TREE = (
    "Medusa’s tree has {0} nodes, as it comes with the heads: steps have not been timed in a quiet moment "
    "here, so another may be faster."
)
FINDING = "Finding the tree that is fastest on this machine: once, for about two seconds…"
WARM_UP_TOKENS = 6
NOTE_SECONDS = 1.0  # often enough to notice a closed page, too seldom to disturb
MOST_REPETITIONS = 5
Trace = dict[str, Any]


def warm_up_config(engine: Engine, config: GenerationConfig) -> GenerationConfig:
    """The settings of an unmeasured run before runs of ``config``: shorter, unless steps are captured.

    The length of the text decides which graphs are captured, so only a whole run captures all of them.
    """
    short = config.changed(max_new_tokens=min(WARM_UP_TOKENS, config.max_new_tokens))
    return config if engine.target.choice.captured else short


def check_repetitions(runs: int) -> None:
    """Raises MedusaError for more runs of each lane than the page makes."""
    if not 1 <= runs <= MOST_REPETITIONS:
        raise MedusaError(f"{runs} runs of each asked for: choose 1 to {MOST_REPETITIONS}")


@dataclass(frozen=True)
class MeasuredUpdate(Update):
    """The end of a comparison: by lane name, the median run and the tokens/s of all runs."""

    medians: dict[str, Trace] = field(default_factory=dict)
    speeds: dict[str, list[float]] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompareRequest(SettingsRequest):
    """A prompt to be continued by two lanes, ``repetitions`` times each.

    The first lane has ``settings``; the second takes from them what it does not set itself. If neither lane
    is plain decoding, that is timed as well, as the baseline of speedup and overhead.
    """

    prompt: str
    settings: RunSettings
    repetitions: int
    second: SecondLane = field(default_factory=SecondLane)

    def most_tokens(self) -> float:
        """All lanes' tokens. Raises MedusaError for a prompt or settings beyond the page's limits."""
        check_prompt(self.prompt)
        check_repetitions(self.repetitions)
        configs = [make_config(settings) for settings in self._wished()]
        return self.repetitions * sum(config.max_new_tokens for config in configs)

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """Run all lanes in turn, then yield the race message."""
        loaded = yield from engines.ready(self.settings.selection, self.settings.heads)
        wished = self._wished(loaded.drafts)
        if not flag.stopped and self._wants_step_times(engines, wished):
            yield Update(status_message(FINDING), FINDING)
            engines.models.measure_now(Limit(lambda: flag.stopped))
        made: list[tuple[Engine, GenerationConfig]] = []
        badges: list[str] = []
        for settings in reversed(wished):
            made.insert(0, (yield from _noted(ready(engines, settings), badges)))
        badges += [words for used, config in reversed(made) if (words := _auto_tree(used, config))]
        yield Update(badge=sentences(*dict.fromkeys(reversed(badges))))  # both lanes' notes, each once
        counts = [
            what_counts(settings, config, used.drafts)
            for settings, (used, config) in zip(wished, made, strict=True)
        ]
        engine, ours = made[0]
        if counts[0] == counts[1]:
            raise MedusaError(_why_alone(engine, self.settings, ours, counts[0]["method"]))
        names = [*lane_names(counts[0], counts[1]), *(found["method"] for found in counts[2:])]
        # Plain decoding has nothing to accept; `match` draws from the model at the same temperature.
        configs = [replace(one, acceptance="match") if one.method == PLAIN_METHOD else one for _, one in made]
        lanes = [Lane(name, used, one) for name, (used, _), one in zip(names, made, configs, strict=True)]
        if any(lane.plain for lane in lanes[:2]):
            lanes = lanes[:2]  # a model without the weights of a method decodes plainly instead
        yield from Comparison(lanes, engine.encode(self.prompt)).run(self.repetitions, flag)

    def _wants_step_times(self, engines: Engines, wished: Sequence[RunSettings]) -> bool:
        """Whether a lane asks for the fastest tree on this machine and it can be found now."""
        from medusa_core.evaluation.step_times import asks_for_auto_tree  # noqa: PLC0415 - imports torch

        shipped = [make_config(settings) for settings in wished if settings.heads != YOURS]
        asked = any(map(asks_for_auto_tree, shipped))
        return asked and engines.models.wants_step_times(self.settings.selection)

    def _wished(self, drafts: Mapping[str, Draft] | None = None) -> list[RunSettings]:
        """Settings of both lanes, and of plain decoding if neither lane is that."""
        lanes = [self.settings, self.second.settings(self.settings, drafts)]
        if all(settings.method != PLAIN_METHOD for settings in lanes):
            lanes.append(replace(self.settings, method=PLAIN_METHOD))
        return lanes


def _auto_tree(engine: Engine, config: GenerationConfig) -> Words | str:
    """What the tree "auto" became in a lane; empty for other trees."""
    from medusa_core.evaluation.step_times import auto_tree  # noqa: PLC0415 - imports torch

    tree = auto_tree(engine, config)
    if tree is None or not (tree.timed or tree.untimed):
        return ""
    return Words(FASTEST_TREE if tree.timed else UNTIMED_TREE, tree.nodes)


def _noted(
    updates: Generator[Update, None, tuple[Engine, GenerationConfig]], badges: list[str]
) -> Generator[Update, None, tuple[Engine, GenerationConfig]]:
    """Pass on the updates and their result; ``badges`` collects the notes shown beside the button."""
    while True:
        try:
            update = next(updates)
        except StopIteration as end:
            return end.value
        if update.badge:
            badges.append(update.badge)
        yield update


def _why_alone(engine: Engine, settings: RunSettings, config: GenerationConfig, name: str) -> str:
    """Why two lanes are one and the same run."""
    if settings.method != config.method:
        return (
            f"{engine.info.base} has no weights for {method(settings.method).title}, so there is nothing to "
            "compare with plain decoding: choose another method, or a model that has them"
        )
    return f"both lanes are the same run of “{name}”: choose another method or setting for one of them"


@dataclass(frozen=True)
class Lane:
    """One way to continue the prompt."""

    name: str
    engine: Engine
    config: GenerationConfig

    @property
    def plain(self) -> bool:
        return self.config.method == PLAIN_METHOD


@dataclass(frozen=True)
class Comparison:
    """Two lanes and, where neither is plain decoding, a third one that is."""

    lanes: Sequence[Lane]
    ids: list[int]

    def run(self, repetitions: int, flag: StopFlag) -> Generator[Update, None, None]:
        """Warm up, time all in turn, and end with the race message."""
        for one in self.lanes:
            unmeasured = replace(one, config=warm_up_config(one.engine, one.config))
            yield from self._timed(unmeasured, Words("Warming up: {0}", one.name), flag)
        traces: list[list[Trace]] = [[] for _ in self.lanes]
        label = Words("Timing {0}, run {1} of {2}", self.lanes[0].name, 1, repetitions)
        yield Update(status_message(label), label)
        let_browser_draw()
        others = OtherWork()
        for number in comparison.run_order(len(self.lanes), repetitions):
            one, done = self.lanes[number], len(traces[number])
            label = Words("Timing {0}, run {1} of {2}", one.name, done + 1, repetitions)
            traces[number].append((yield from self._timed(one, label, flag)))
            if flag.stopped:
                words = "Stopped before the comparison was complete: nothing is shown rather than half of it."
                yield Update(status_message(words, busy=False), "Stopped.")
                return
        yield self._result(traces, busy_words(others.record()))

    def _timed(self, one: Lane, label: str, flag: StopFlag) -> Generator[Update, None, Trace]:
        """One run; returns its trace."""
        from medusa_core.trace.builder import TraceBuilder  # noqa: PLC0415 - pulls in transformers

        builder = TraceBuilder(one.engine, one.config, self.ids)
        noted, tokens = perf_counter(), 0
        with closing(one.engine.stream(self.ids, one.config)) as steps:
            for step in steps:
                builder.add(step)
                tokens += len(step.emitted)
                if perf_counter() - noted > NOTE_SECONDS:
                    noted = perf_counter()
                    words = Words("{0}: {1}", label, amount(tokens, "token"))
                    yield Update(status_message(words), words)
                if flag.stopped:
                    break
        return builder.finish()

    def _result(self, traces: list[list[Trace]], warning: str) -> MeasuredUpdate:
        medians = [comparison.median_run(runs) for runs in traces]
        same = self.lanes[0].engine.target is self.lanes[1].engine.target
        exact = self.lanes[0].engine.target.choice.exact
        verdict = comparison.equality_verdict(medians[0], medians[1], same_weights=same, exact=exact)
        if verdict["comparable"] and not verdict["equal"]:
            verdict["logit_gap"] = self._logit_gap(medians, verdict["index"])
        names = [one.name for one in self.lanes]
        speeds = [[comparison.speed(trace) for trace in runs] for runs in traces]
        lanes = [lane(*parts) for parts in zip(names, medians, speeds, strict=True)]
        return MeasuredUpdate(
            race_message(lanes, verdict, baseline=self._baseline(), warning=warning),
            "Measured. The replay runs on one clock.",
            medians=dict(zip(names, medians, strict=True)),
            speeds=dict(zip(names, speeds, strict=True)),
            verdict=verdict,
        )

    def _baseline(self) -> int:
        """The lane that speedup and overhead refer to: the last one of plain decoding."""
        return max(number for number, one in enumerate(self.lanes) if one.plain)

    def _logit_gap(self, medians: list[Trace], index: int) -> float | None:
        """How far apart the two tokens' logits were where the texts part, in plain decoding's own numbers.

        None where plain decoding had already left the lanes' common text.
        """
        texts = [trace["output"]["token_ids"] for trace in medians]
        plain, base = self._baseline(), texts[self._baseline()]
        pair = [text[index : index + 1] for text in texts[:2]]
        if index == 0 or not all(pair) or base[:index] != texts[0][:index]:
            return None
        one = self.lanes[plain]
        with closing(one.engine.stream(self.ids, one.config)) as steps:
            for step in steps:
                if step.index == index - 1:  # plain decoding: this step's logits chose token `index`
                    first, second = (float(step.logits[0, tokens[0]]) for tokens in pair)
                    return abs(first - second)
        return None
