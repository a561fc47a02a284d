"""One run for the Decode tab: each step of the engine's stream as a message of the linked view.

Works on an engine it is given and loads none. Knows the view's messages, but no component of the page.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, Any

from medusa_core.config import GenerationConfig
from medusa_core.text.plural import counted
from ui.components.decode_view import layout_key, message_begin, message_end, message_step
from ui.records.updates import StopFlag, Update

if TYPE_CHECKING:
    from medusa_core.decoding import Step
    from medusa_core.engine import Engine

SLOWED = 0.2  # the share of a run's time from which on its status says that showing the steps took it


def decode_run(
    engine: Engine,
    ids: Sequence[int],
    config: GenerationConfig,
    flag: StopFlag,
    steps: Generator[Step, None, None] | None = None,
) -> Generator[Update, None, None]:
    """Decode after ``ids``: a begin, a step each and an end message; the last update has the trace.

    ``steps`` are those of a run after the same ids with the same settings, where the caller has made one.
    """
    from medusa_core.trace import TraceBuilder  # noqa: PLC0415 - pulls in transformers

    run, known, seq = uuid.uuid4().hex, set(), 0
    tokens, computed, shown = 0, 0.0, 0.0
    started = perf_counter()
    builder = TraceBuilder(engine, config, ids)
    yield Update(message_begin(seq, run, builder.begin()), "Reading the prompt…")
    with closing(steps or engine.stream(ids, config)) as made:
        for step in made:
            arrived = perf_counter()
            record = builder.add(step)
            seq += 1
            message = message_step(seq, run, record, known)
            known.add(layout_key(record))
            tokens, computed = tokens + len(step.emitted), computed + step.ms.total / 1000
            yield Update(message, f"{step_words(seq, record)}; {rates(step.ms.total, tokens, computed)}")
            shown += perf_counter() - arrived
            if flag.stopped:
                break
    trace = builder.finish()
    words = summary(trace, perf_counter() - started, shown)
    yield Update(message_end(seq + 1, run, trace), words, trace=trace)


def step_words(number: int, step: dict[str, Any]) -> str:
    """What a step came to while the run goes on. The root is no guess: the model chose it a step before."""
    guesses = counted(len(step["nodes"]) - 1, "guess", "guesses")
    return f"Step {number}: {counted(len(step['emitted']), 'token')} kept, {guesses} checked"


def rates(milliseconds: float, tokens: int, seconds: float) -> str:
    """A step's time and the speed so far, by the engine's own clock, which stands still between steps."""
    speed = f", {tokens / seconds:.0f} tokens/s" if seconds else ""
    return f"{milliseconds:.0f} ms{speed} in the engine"


def summary(trace: dict[str, Any], seconds: float, shown: float = 0.0) -> str:
    """What a finished run came to, in one line.

    ``seconds`` are those the visitor waited, ``shown`` those of them in which the engine stood still because
    a step was being written down and sent.
    """
    output = trace["output"]
    ended = {
        "eos": "the text ended",
        "stop": "a stop string came",
        "length": "the token budget is used up",
        "context": "the model's context is full",
        "cancelled": "stopped",
    }[output["finish_reason"]]
    slowed = f", {shown:.1f} s of them to show the steps" if shown > SLOWED * seconds else ""
    return (
        f"{counted(output['new_tokens'], 'token')} in {counted(output['steps'], 'step')}, "
        f"{output['tokens_per_step']:.2f} a step: {ended}. "
        f"{output['tokens_per_second']:.0f} tokens/s in the engine, {seconds:.1f} s in all{slowed}."
    )
