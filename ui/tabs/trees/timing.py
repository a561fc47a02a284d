"""What the Trees tab measures: the time of a step by tree size on this machine, and the heads' accuracies.

Computes on the session's engine and makes a new record of the one it is given. Knows no component.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.text.plural import counted
from medusa_core.trees.budget import LatencyPoint, unsteady
from ui.records.examples import example_prompts
from ui.records.selection import Chosen
from ui.records.updates import StopFlag, Update
from ui.session import Session
from ui.tabs.trees.lab import ASSUMED, Lab, best_size, frozen, machine_line

if TYPE_CHECKING:
    from medusa_core.engine import Engine

ROUNDS = 5
ROUND_TOKENS = 48
COUNTED_TOKENS = 96  # a prompt, when the accuracies are counted again


@dataclass(frozen=True)
class Measured:
    """A note for the page on the way, and the new record at the end."""

    update: Update
    lab: Lab | None = None


def measure(
    session: Session, lab: Lab, chosen: Chosen, count_again: bool, flag: StopFlag
) -> Iterator[Measured]:
    """Time steps of every size on this machine, and count the accuracies where asked or where unknown."""
    texts = [prompt["text"] for kind in example_prompts(session.assets) for prompt in kind["prompts"]]
    # Not a function within this one: it may have to be told to another process.
    work = partial(_measure, lab=lab, texts=texts, count_again=count_again, flag=flag)
    for item in session.on_engine(work, chosen, flag):
        yield Measured(item) if isinstance(item, Update) else item


def _measure(
    engine: Engine, lab: Lab, texts: Sequence[str], count_again: bool, flag: StopFlag
) -> Iterator[Measured]:
    from medusa_core.evaluation.bench import machine_record  # noqa: PLC0415 - these pull in transformers
    from medusa_core.evaluation.latency import measure_latency  # noqa: PLC0415

    if not engine.drafts:
        raise MedusaError(
            f"{engine.info.base} has no Medusa heads, so nothing can be measured: choose a model with heads"
        )
    heads = medusa_draft(engine).heads
    prompts = [engine.encode(text) for text in texts]
    if count_again or lab.source == ASSUMED or len(lab.accuracies) != heads.count:
        lab = yield from _count(engine, lab, prompts, flag)
    # The trees to time are those that the page shows.
    engine = with_heads(engine, accuracies=[list(row) for row in lab.accuracies])
    points: list[LatencyPoint] = []
    complete = 0
    with closing(measure_latency(engine, prompts, rounds=ROUNDS, new_tokens=ROUND_TOKENS)) as runs:
        for run in runs if not flag.stopped else ():
            words = f"Timing trees of {counted(run.nodes, 'node')}: run {run.done} of {run.total}"
            yield Measured(Update(status=words))
            sizes = run.total // ROUNDS
            if run.done % sizes == 0:
                complete, points = run.done // sizes, run.latency
            if flag.stopped:
                break
    if not complete:
        yield Measured(Update(status="Stopped before every size had its turn: the step times stay."), lab)
        return
    record = machine_record(engine) | {"device": engine.info.device, "dtype": engine.info.dtype}
    lab = replace(lab, latency=tuple(points), machine=machine_line(record))
    best = best_size(lab)
    rounds = f"{complete} of {ROUNDS} rounds" if complete < ROUNDS else f"{ROUNDS} rounds"
    words = f"Measured in {rounds} on {lab.machine}."
    if best is not None:
        words += f" Best size: {counted(best.nodes, 'node')}, {best.tokens_per_second:.0f} tokens/s expected."
    if warning := unsteady(points):
        words += f" But {warning}."
    yield Measured(Update(status=words), lab)


def _count(engine: Engine, lab: Lab, prompts: Sequence[Sequence[int]], flag: StopFlag) -> Iterator[Measured]:
    """Count the accuracies on the model's own text; returns the record with them."""
    from medusa_core.evaluation.head_accuracy import count_heads  # noqa: PLC0415 - pulls in transformers

    shares, positions = [], 0
    for number, found in enumerate(count_heads(engine, prompts, COUNTED_TOKENS), start=1):
        yield Measured(Update(status=f"Counting right guesses: text {number} of {len(prompts)}"))
        if flag.stopped:
            return lab
        shares, positions = found.shares, found.positions
    source = f"counted here, over {counted(positions, 'position')} of texts that continue the examples"
    return replace(lab, accuracies=frozen(shares), source=source, loaded=())
