"""What new heads are worth: how often they are right, the tree that fits them here, and the speed it gives.

Everything is measured on this machine with the shipped prompts, next to plain decoding and to fresh heads.
Knows the engine and its measurements, nothing of training or of the page. Paper §2.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.text.plural import counted
from medusa_core.trees.budget import best_budget, budgets
from medusa_core.trees.tree import Topology
from ui.records.examples import example_prompts
from ui.records.updates import StopFlag

if TYPE_CHECKING:
    from medusa_core.drafters.medusa.draft import MedusaDraft
    from medusa_core.engine import Engine
    from medusa_core.trees.budget import LatencyPoint

COUNTED_TOKENS = 64  # a prompt, when right guesses are counted
SIZES = (1, 2, 4, 6, 8, 12, 16)  # of the trees that are timed, the root included
ROUNDS = 3
ROUND_TOKENS = 32
PART_SECONDS = 10.0  # after which counting, timing or racing is cut short; half a minute in all
RACE_TOKENS = 64  # a prompt, when fresh and new heads race plain decoding
USUAL_NODES = 8  # of the tree where none was timed


@dataclass(frozen=True)
class Gain:
    """Fresh heads and new heads with the same tree on the same prompts; speedup is over plain decoding."""

    nodes: int
    fresh_tokens_per_step: float
    fresh_speedup: float
    tokens_per_step: float
    speedup: float
    prompts: int


def measure_gain(engine: Engine, assets: Path, flag: StopFlag) -> Iterator[str | tuple[Engine, Gain | None]]:
    """Words on the way; last the engine with its accuracies and its tree, and what was gained.

    Stopped, it ends with what is known by then: the gain is None when the race was not finished.
    """
    from medusa_core.evaluation.head_accuracy import count_heads  # noqa: PLC0415 - these pull in transformers
    from medusa_core.evaluation.latency import measure_latency  # noqa: PLC0415

    prompts = [engine.encode(text) for text in _in_turn(assets)]
    clock = _Clock(flag)
    for number, found in enumerate(count_heads(engine, prompts, COUNTED_TOKENS), start=1):
        engine = with_heads(engine, accuracies=found.shares)
        yield f"Counting right guesses: prompt {number} of {len(prompts)}"
        if clock.over:
            break
    latency: list[LatencyPoint] = []
    runs = measure_latency(engine, prompts, SIZES, ROUNDS, ROUND_TOKENS)
    clock = _Clock(flag)
    for run in () if flag.stopped else runs:
        yield f"Timing trees of {counted(run.nodes, 'node')}: run {run.done} of {run.total}"
        if run.done % (run.total // ROUNDS) == 0:  # every size had its turn
            latency = run.latency
        if flag.stopped or (latency and clock.over):
            break
    engine = with_heads(engine, default_tree=_best_tree(medusa_draft(engine), latency))
    yield engine, (yield from _race(engine, prompts, flag))


def _in_turn(assets: Path) -> list[str]:
    """The example prompts, one of each kind first: measuring that is cut short has then seen every kind."""
    kinds = [[prompt["text"] for prompt in kind["prompts"]] for kind in example_prompts(assets)]
    return [text for texts in zip_longest(*kinds) for text in texts if text is not None]


def _best_tree(draft: MedusaDraft, latency: Sequence[LatencyPoint]) -> Topology:
    """The tree with the most expected tokens per second, or one of the usual size where none was timed."""
    nodes = USUAL_NODES
    if len(latency) > 1:
        nodes = best_budget(budgets(draft.accuracies, latency)).nodes
    return draft.budget_tree(nodes - 1)


def _race(engine: Engine, prompts: Sequence[list[int]], flag: StopFlag) -> Generator[str, None, Gain | None]:
    """Plain decoding, fresh heads and the new ones in turn on every prompt; returns the gain."""
    from medusa_core.drafters.medusa.heads import MedusaHeads  # noqa: PLC0415
    from medusa_core.evaluation.bench import Measurement, measure_run  # noqa: PLC0415
    from medusa_core.target.quantization import lm_head_weight  # noqa: PLC0415

    lm_head = lm_head_weight(engine.target.model)
    fresh = MedusaHeads.fresh(lm_head, medusa_draft(engine).heads.count, 1).requires_grad_(False).eval()
    plain = GenerationConfig(method="none", max_new_tokens=RACE_TOKENS)
    ours = replace(plain, method="medusa")
    racers = {
        "plain": (engine, plain),
        "fresh": (with_heads(engine, heads=fresh), ours),
        "new": (engine, ours),
    }
    runs: dict[str, list[Measurement]] = {name: [] for name in racers}
    clock = _Clock(flag)
    for number, prompt in enumerate(prompts, start=1):
        if runs["new"] and clock.over:
            break
        for name, (racer, config) in racers.items():
            if flag.stopped:
                return None
            runs[name].append(measure_run(racer, prompt, config))
        yield f"Racing plain decoding: prompt {number} of {len(prompts)}"
    rate = {name: sum(len(m.tokens) for m in log) / sum(m.seconds for m in log) for name, log in runs.items()}
    kept = {name: sum(len(m.tokens) for m in log) / sum(m.steps for m in log) for name, log in runs.items()}
    nodes = medusa_draft(engine).tree("default").size
    fresh_speedup, speedup = (rate[name] / rate["plain"] for name in ("fresh", "new"))
    return Gain(nodes, kept["fresh"], fresh_speedup, kept["new"], speedup, len(runs["new"]))


class _Clock:
    """Says when a part of the measuring is to end: its seconds are used up, or the visitor stops it."""

    def __init__(self, flag: StopFlag) -> None:
        self._flag = flag
        self._end = perf_counter() + PART_SECONDS

    @property
    def over(self) -> bool:
        return self._flag.stopped or perf_counter() > self._end
