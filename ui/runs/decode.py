"""Runs with the page's settings, and Watch's run: the engine's steps as messages of the linked view."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafters_of, method
from medusa_core.drafters._head_trees import is_dynamic
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from ui.records.figures import small_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.messages import message_begin, message_broken, message_end, message_steps
from ui.records.settings import (
    BY_BUDGET,
    LONGEST_RUN,
    YOURS,
    RunSettings,
    Selection,
    check_prompt,
    make_config,
    own_tree,
)
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount, as_data, sentences
from ui.serving.engines import Engines
from ui.serving.runner import Request

if TYPE_CHECKING:
    from medusa_core.decoding import Step
    from medusa_core.engine import Engine


TOGETHER_SECONDS = 0.1  # span of the steps in one message: the page hardly draws a live run more often
FASTER = "The tree “auto”, here of {0} nodes, makes the most tokens per second: choose it in the settings."
UNTIMED = (
    "“auto” was the tree that came with the heads: which one is fastest here is not known yet, since the "
    "machine had no quiet moment for timing its steps. If it stays so, close other programs and start the "
    "app again, or use Side by side in Compare."
)
UNTIMED_DYNAMIC = (
    "There is no estimate for a dynamic tree, whose steps are not timed beforehand: Side by side in Compare "
    "measures it."
)
SLOWED = 0.2  # share of a run's time spent showing steps, above which its status names that time


class SettingsRequest(Request):
    """A request that the page's controls describe."""

    settings: RunSettings

    @property
    def selection(self) -> Selection:  # type: ignore[override]  # a field of other requests
        return self.settings.selection


def ready(
    engines: Engines, settings: RunSettings
) -> Generator[Update, None, tuple[Engine, GenerationConfig]]:
    """Engine and settings of a run; yields words while the model loads. Raises MedusaError."""
    config = make_config(settings, LONGEST_RUN)  # the page's limit was checked before the run
    engine = yield from engines.ready(settings.selection, settings.heads)
    if config.method not in engine.methods():
        title = method(config.method).title
        yield Update(
            badge=Words("{0}: this model has no weights for it and decodes plainly, one token a step.", title)
        )
        # Plain decoding accepts nothing, so the rule has no effect.
        return engine, config.changed(method=PLAIN_METHOD, acceptance="match")
    if MEDUSA not in drafters_of(config.method):
        return engine, config
    if settings.tree == BY_BUDGET:
        config = config.changed(tree=medusa_draft(engine).budget_tree(int(settings.budget) - 1))
    elif settings.tree == YOURS:
        tree = own_tree(settings.selection)
        tree.check(medusa_draft(engine).heads.count)
        config = config.changed(tree=tree)
    return engine, config


class ViewRequest(SettingsRequest):
    """A request whose run is shown in the linked view."""

    def longest_run(self) -> float:
        return self.settings.max_new_tokens

    def broken_off(self, update: Update) -> Update:
        """The update with an end for the view."""
        return replace(update, message=message_broken(update.status or ""))


@dataclass(frozen=True)
class DecodeRequest(ViewRequest):
    """A text to be continued."""

    prompt: str
    settings: RunSettings

    def most_tokens(self) -> float:
        """Raises MedusaError for a prompt or settings beyond the page's limits."""
        check_prompt(self.prompt)
        return make_config(self.settings, LONGEST_RUN).max_new_tokens

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """Messages: begin, each step, end; the last update has the trace."""
        engine, config = yield from ready(engines, self.settings)
        ids = engine.encode(self.prompt)
        yield from shown_steps(engine, ids, config, flag, engine.stream(ids, config))


def shown_steps(
    engine: Engine,
    ids: list[int],
    config: GenerationConfig,
    flag: StopFlag,
    steps: Generator[Step, None, None],
    listener: Callable[[Step], None] | None = None,
) -> Generator[Update, None, None]:
    """The ``steps`` of a run after ``ids`` as updates, the trace in the last one.

    ``listener`` is called with each step; steps made within a moment go out together.
    """
    from medusa_core.trace.builder import TraceBuilder  # noqa: PLC0415 - pulls in transformers

    run, number, sent = uuid.uuid4().hex, 0, 0
    tokens, computed, shown = 0, 0.0, 0.0
    started = sent_at = perf_counter()
    builder = TraceBuilder(engine, config, ids)
    yield Update(message_begin(run, builder.begin()), "Reading the prompt…", run_record=builder.record)
    with closing(steps):
        for step in steps:
            arrived = perf_counter()
            if listener is not None:
                listener(step)
            builder.add(step)
            number += 1
            tokens, computed = tokens + len(step.emitted), computed + step.ms.total / 1000
            last = flag.stopped or step.finish_reason is not None
            if number == 1 or last or arrived - sent_at > TOGETHER_SECONDS:
                message = message_steps(run, sent, builder.news())
                words = Words("{0}; {1}", step_words(step), rates(step.ms.total, tokens, computed))
                yield Update(message, words)
                sent, sent_at = number, perf_counter()
            shown += perf_counter() - arrived
            if flag.stopped:
                break
    record = builder.ended()
    trace = record.trace()
    words = summary(trace, perf_counter() - started, shown)
    end = message_end(run, trace, _beside(engine, config))
    yield Update(end, words, trace=trace, run_record=record)


def _beside(engine: Engine, config: GenerationConfig) -> dict[str, Any]:
    """What speedup depends on besides the run.

    Steps drawn while they are made take several times as long, so they say nothing about speedup.
    """
    from medusa_core.evaluation import step_times  # noqa: PLC0415 - imports torch

    waits = step_times.asks_for_auto_tree(config) and step_times.lacks_step_times(engine)
    faster = step_times.faster_tree(engine, config)
    return {
        "timed_ms": step_times.timed_steps(engine, config),
        "small": as_data(small_words(engine.info.base)),
        "untimed": UNTIMED if waits else UNTIMED_DYNAMIC if is_dynamic(config.options.get("tree")) else "",
        "faster": as_data(Words(FASTER, faster) if faster else ""),
    }


def step_words(step: Step) -> Words:
    """A step's result while the run goes on. The root is not a guess: the model chose it before."""
    kept, guesses = amount(len(step.emitted), "token"), amount(step.tree.size - 1, "guess", "guesses")
    return Words("Step {0}: {1} kept, {2} checked", step.index + 1, kept, guesses)


def rates(milliseconds: float, tokens: int, seconds: float) -> Words:
    """A step's time and the speed so far, by the engine's own clock, which stands still between steps."""
    return Words("{0} ms, {1} tokens/s in the engine", f"{milliseconds:.0f}", f"{tokens / seconds:.0f}")


def summary(trace: dict[str, Any], seconds: float, shown: float = 0.0) -> Words:
    """A finished run, in one line.

    ``seconds`` is how long the visitor waited; for ``shown`` of them the engine stood still while a step was
    being written down and sent.
    """
    output = trace["output"]
    ended = {
        "eos": "the text ended",
        "stop": "it reached a stop string",
        "length": "the token budget is used up",
        "context": "the model's context is full",
        "cancelled": "stopped",
    }[output["finish_reason"]]
    tokens, steps = amount(output["new_tokens"], "token"), amount(output["steps"], "step")
    made = Words("{0} in {1}, {2} a step: {3}.", tokens, steps, f"{output['tokens_per_step']:.2f}", ended)
    times = [f"{output['tokens_per_second']:.0f}", f"{seconds:.1f}"]
    if shown >= 0.05 and shown > SLOWED * seconds:  # below, it would read as 0.0
        times.append(f"{shown:.1f}")
        slowed = Words("{0} tokens/s in the engine, {1} s in all, {2} s of them to show the steps.", *times)
        return sentences(made, slowed)
    return sentences(made, Words("{0} tokens/s in the engine, {1} s in all.", *times))
