"""MHA, GQA and MQA measured: tiny random models that differ in their key-value heads alone.

They have the same width, layers and query heads; the weights are random, since they do not change the time of
a step. Cache bytes are those that the cache holds, not those of a formula.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import torch

from medusa_core.evaluation.forward_times import chain, milliseconds
from medusa_core.evaluation.random_model import random_llama
from medusa_core.hardware.shapes import ModelShape, attention_kind
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.loading.devices import native_library
from medusa_core.model.target import Target
from medusa_core.model.threads import each_within

HEADS, HEAD_SIZE, LAYERS, VOCABULARY = 8, 64, 4, 512
KV_HEADS = (8, 2, 1)
LENGTHS = (128, 512, 1024, 2048)
ROUNDS = 7


@dataclass(frozen=True)
class KindTime:
    """One model at one length: bytes its cache holds, and milliseconds for a token (fastest round)."""

    kind: str
    kv_heads: int
    length: int
    cache_bytes: int
    ms: float


def measure_kinds(
    lengths: Sequence[int] = LENGTHS, rounds: int = ROUNDS
) -> Generator[list[KindTime], None, None]:
    """Times of a decoding step of each kind, length by length; yields all that is known after each length."""
    targets = {count: random_target(count, max(lengths) + 1) for count in KV_HEADS}
    yield from each_within(torch.inference_mode, _times(targets, sorted(lengths), rounds))


def _times(
    targets: Mapping[int, Target], lengths: Sequence[int], rounds: int
) -> Generator[list[KindTime], None, None]:
    found: list[KindTime] = []
    caches = {count: target.new_cache(lengths[-1] + 1) for count, target in targets.items()}
    for length in lengths:
        for count, target in targets.items():
            target.prefill([1] * (length - caches[count].length), caches[count])
        times: dict[int, list[float]] = {count: [] for count in targets}
        for number in range(rounds + 1):  # kinds take turns; the first round warms up
            for count, target in targets.items():
                ms = milliseconds(target, chain(target, 1), caches[count])
                if number:
                    times[count].append(ms)
        found += [
            KindTime(
                attention_kind(HEADS, count), count, length,
                caches[count].nbytes * length // caches[count].slots, min(times[count]),
            )
            for count in targets
        ]  # fmt: skip
        yield list(found)


def random_target(kv_heads: int, context: int) -> Target:
    """A model of four layers with drawn weights. Raises MedusaError for heads that cannot be shared."""
    width = HEADS * HEAD_SIZE
    sizes = width, 2 * width, HEADS, kv_heads, HEAD_SIZE, LAYERS, VOCABULARY
    shape = ModelShape(f"{kv_heads} key-value heads", *sizes, tied=True)
    with torch.inference_mode(False), torch.no_grad():
        target = Target(random_llama(shape, torch.device("cpu"), torch.float32, context))
    choose_forward(target, library=native_library())
    return target
