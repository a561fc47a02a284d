"""What heads gain: plain decoding, fresh heads and the trained ones in turn, on the same prompts and tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.engine import Engine
from medusa_core.evaluation.bench import BASELINE
from medusa_core.evaluation.limits import NO_LIMIT, Effort, Limit
from medusa_core.evaluation.measure_heads import HeadMeasurement, measure_heads
from medusa_core.evaluation.speedup import Gain
from medusa_core.evaluation.turns import Turn, measure_run, take_turns

FRESH = "fresh heads"


@dataclass(frozen=True)
class Gained:
    """The engine with its accuracies and its tree, and what was gained; None when stopped before."""

    engine: Engine
    found: HeadMeasurement
    gain: Gain | None


def compare_heads(
    engine: Engine,
    prompts: list[list[int]],
    config: GenerationConfig,
    rounds: int = 1,
    limit: Limit = NO_LIMIT,
    *,
    warm_up: bool = True,
) -> Iterator[Turn]:
    """Measure the three in turn under BASELINE, MEDUSA and FRESH; fresh heads in the first round only."""
    lm_head = engine.target.held.lm_head()
    fresh = MedusaHeads.fresh(lm_head, medusa_draft(engine).heads.count, 1, shared=True)
    medusa = config.changed(method=MEDUSA)
    runners = {
        BASELINE: partial(measure_run, engine, config=config.changed(method=BASELINE)),
        MEDUSA: partial(measure_run, engine, config=medusa),
        FRESH: partial(measure_run, with_heads(engine, heads=fresh), config=medusa),
    }
    captured = engine.target.choice.captured
    yield from take_turns(runners, prompts, rounds, limit, once=(FRESH,), warm_up=warm_up, captured=captured)


def measure_gain(
    engine: Engine, prompts: list[list[int]], effort: Effort, new_tokens: int, limit: Limit = NO_LIMIT
) -> Iterator[HeadMeasurement | Turn | Gained]:
    """Measure the heads, give them their best tree and compare it; the last record is what was gained.

    ``limit`` and the effort's seconds end each part early; stopped, there is no gain.
    """
    for found in measure_heads(engine, prompts, effort, limit):
        yield found
    tree = found.best_tree.topology
    measured = {"accuracies": found.accuracies.shares, "latency": tuple(found.latency)}
    engine = with_heads(engine, **measured, default_tree=tree)
    config = GenerationConfig(max_new_tokens=new_tokens)
    turn: Turn | None = None
    # Every size was run before: nothing is left to warm up.
    part = limit.within(effort.seconds)
    for turn in compare_heads(engine, prompts, config, limit=part, warm_up=not found.rounds):
        yield turn
    gain = None
    if turn is not None and turn.last and not (limit.stopped and turn.done < turn.total):
        plain, fresh, new = (turn.logs[name] for name in (BASELINE, FRESH, MEDUSA))
        (slow,), (before,), (after,) = (log.decode_rates() for log in (plain, fresh, new))
        kept, prompts_run = new.tokens_per_step(), len(new.rounds[0])
        gain = Gain(tree.size, fresh.tokens_per_step(), before / slow, kept, after / slow, prompts_run)
    yield Gained(engine, found, gain)
