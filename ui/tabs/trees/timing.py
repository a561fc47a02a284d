"""What the Trees tab measures: the time of a step by tree size on this machine, and the heads' accuracies.

Computes on the session's engine and makes a new record from the given one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError, counted
from medusa_core.evaluation.limits import COUNTING, TIMING, Effort, Limit
from medusa_core.trees.budget import unsteady
from ui.records.examples import example_texts
from ui.records.settings import Selection
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount, sentences
from ui.runs.session import Session
from ui.tabs.trees.head_stats import ASSUMED, HeadStats, best_size, frozen, machine_line

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.measure_heads import HeadMeasurement

EFFORT = Effort(counted_tokens=96, rounds=5, round_tokens=48)


@dataclass(frozen=True)
class Measured(Update):
    """A note for the page while measuring, and the new record at the end."""

    stats: HeadStats | None = None


def measure(
    session: Session, stats: HeadStats, selection: Selection, count_again: bool, flag: StopFlag
) -> Iterator[Measured]:
    """Time steps of every size on this machine, and count the accuracies if asked to or if unknown."""
    texts = example_texts(session.assets)
    # Not a nested function: another process may have to unpickle it.
    work = partial(_measure, stats=stats, texts=texts, count_again=count_again, flag=flag)
    yield from session.on_engine(work, selection, flag, kind=Measured)


def _measure(
    engine: Engine, stats: HeadStats, texts: Sequence[str], count_again: bool, flag: StopFlag
) -> Generator[Measured, None, None]:
    from medusa_core.evaluation.measure_heads import measure_heads, measured_on  # noqa: PLC0415 - transformers

    if MEDUSA not in engine.drafts:
        raise MedusaError(
            f"{engine.info.base} has no Medusa heads, so nothing can be measured: choose a model with heads"
        )
    prompts = [engine.encode(text) for text in texts]
    count = (
        count_again or stats.source == ASSUMED or len(stats.accuracies) != medusa_draft(engine).heads.count
    )
    # The trees to time are those that the page shows.
    known = None if count else [list(row) for row in stats.accuracies]
    limit = Limit(lambda: flag.stopped)
    found: HeadMeasurement | None = None
    for found in measure_heads(engine, prompts, EFFORT, limit, known):
        yield Measured(status=measuring_words(found, "text"))
    if count and found is not None and (found.part == TIMING or found.done == found.total):
        over = counted(found.accuracies.positions, "position")
        source = f"counted here, over {over} of texts that continue the examples"
        stats = replace(stats.grown(), accuracies=frozen(found.accuracies.shares), source=source)
    if found is None or not found.rounds:
        yield Measured(status="Stopped before every size had its turn: the step times stay.", stats=stats)
        return
    points, complete = found.latency, found.rounds
    stats = replace(stats, latency=tuple(points), machine=machine_line(measured_on(engine)), figures=None)
    words = [Words("Measured in {0} of {1} rounds on {2}.", complete, EFFORT.rounds, stats.machine)]
    if best := best_size(stats):
        speed = f"{best.tokens_per_second:,.0f}"
        words.append(Words("Best size: {0}, {1} tokens/s expected.", amount(best.nodes, "node"), speed))
    if warning := unsteady(points):
        words.append(Words("But {0}.", warning))
    yield Measured(status=sentences(*words), stats=stats)


def measuring_words(found: HeadMeasurement, text: str) -> str:
    """The status line while heads are measured, with what a tab calls a ``text``."""
    if found.part == COUNTING:
        return f"Counting right guesses: {text} {found.done} of {found.total}"
    return f"Timing trees of {counted(found.nodes, 'node')}: run {found.done} of {found.total}"
