"""Times of single forward passes on the loaded model: by number of tokens, and with and without a cache.

What is timed is the target alone, the work that the formulas of ``hardware`` predict: no drafter, no verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from medusa_core.acceptance.sampling import largest
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.model.threads import each_within
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
ROUNDS = 8


@dataclass(frozen=True)
class ForwardTime:
    """Milliseconds of a pass over so many tokens: the lower quartile of its rounds."""

    tokens: int
    ms: float


@dataclass(frozen=True)
class GrowthPoint:
    """Milliseconds for the next token behind a text of ``length`` tokens, and whether both chose the same."""

    length: int
    cached_ms: float
    recomputed_ms: float
    same: bool


def measure_forwards(
    engine: Engine, context: int, sizes: Sequence[int] = SIZES, rounds: int = ROUNDS
) -> Generator[list[ForwardTime], None, None]:
    """Passes over chains of each size behind ``context`` tokens; yields what is known after each round.

    Sizes take turns, so that a machine whose speed drifts treats all alike. Raises MedusaError where the
    model's context has no room.
    """
    target = engine.target
    if context < 1 or context + max(sizes) > target.context:
        most = target.context - max(sizes)
        raise MedusaError(f"the text has {context} tokens: give 1 to {most}, since {target.context_words}")
    prompt = any_tokens(target, context)
    times: dict[int, list[float]] = {size: [] for size in sizes}

    def passes() -> Generator[list[ForwardTime], None, None]:
        cache = target.new_cache(context + max(sizes))
        target.prefill(prompt, cache)
        trees = {size: chain(target, size) for size in sizes}
        for tree in trees.values():  # the first pass of a size pays for memory and the choice of kernels
            target.verify(tree, cache)
        for _ in range(rounds):
            for size, tree in trees.items():
                times[size].append(milliseconds(target, tree, cache))
            yield [_time_of(size, found) for size, found in times.items()]

    yield from each_within(lambda: _computing(target), passes())


def measure_growth(engine: Engine, prompt: Sequence[int], tokens: int) -> Generator[GrowthPoint, None, None]:
    """Write ``tokens`` greedily, each twice: with the cache, and reading the whole text again without one."""
    target = engine.target
    if not prompt or len(prompt) + tokens > target.context:
        most = target.context - len(prompt)
        raise MedusaError(f"{tokens} tokens are asked for: give 1 to {most}, since {target.context_words}")
    text = list(prompt)

    def points() -> Generator[GrowthPoint, None, None]:
        cache = target.new_cache(len(prompt) + tokens)
        logits, _ = target.prefill(text, cache)
        _recomputed(target, text)
        for _ in range(tokens):
            text.append(int(largest(logits)))
            begun = perf_counter()
            logits = target.verify(chain(target, 1, text[-1]), cache)[0][0]
            cache.commit([0])
            choice = int(largest(logits))
            cached = perf_counter() - begun
            other, recomputed = _recomputed(target, text)
            yield GrowthPoint(len(text), 1000 * cached, 1000 * recomputed, other == choice)

    yield from each_within(lambda: _computing(target), points())


def _recomputed(target: Target, text: Sequence[int]) -> tuple[int, float]:
    """The next token by a pass over the whole text, and its seconds."""
    begun = perf_counter()
    logits, _ = target.prefill(text, target.new_cache(len(text)))
    return int(largest(logits)), perf_counter() - begun


@contextmanager
def _computing(target: Target):
    with torch.inference_mode(), target.running():
        yield


def milliseconds(target: Target, tree: TokenTree, cache: TreeCache) -> float:
    """The time of one pass over a tree."""
    begun = perf_counter()
    logits, _ = target.verify(tree, cache)
    logits[0, 0].item()  # waits for the device
    return 1000 * (perf_counter() - begun)


def chain(target: Target, size: int, token: int = 0) -> TokenTree:
    """A tree that is one path; its time does not depend on its tokens."""
    tokens = [token] if size == 1 else any_tokens(target, size)
    return target.token_tree(tokens, list(range(-1, size - 1)), [ROOT] * size)


def any_tokens(target: Target, count: int) -> list[int]:
    """Arbitrary tokens: the time of a step depends on how many there are, hardly on which."""
    return [(7 * index + 3) % target.vocab_size for index in range(count)]


def _time_of(size: int, found: Sequence[float]) -> ForwardTime:
    ms = statistics.quantiles(found, n=4, method="inclusive")[0] if len(found) > 2 else min(found)
    return ForwardTime(size, ms)
