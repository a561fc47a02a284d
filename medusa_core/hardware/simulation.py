"""What Medusa gains by the formulas alone (paper Appendix G.3, figures 21 to 23).

The paper writes acceleration = 0.477·log(candidates) and does not print the base. Base 2 gives 2.86 tokens a
step at 64 candidates, close to its figure 4a, and is our reading. A step keeps its root in any case, so no
acceleration is below 1.

The time of a block depends on how far reading and arithmetic overlap. With full overlap, the roofline, the
gain ends above batch 32 and falls with the length of the text, as in figures 22 and 23, but at batch 1 the
best count is about 170. Where the two times are added it is about 50, close to figure 21's 64, and the
three speeds that the paper measured on an A100 are all 0.86 to 0.87 of what the formula says; but then the
gain ends at batch 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medusa_core.hardware.devices import Device
from medusa_core.hardware.operators import OVERLAPPED, Work, operators, timed
from medusa_core.hardware.shapes import ModelShape

SLOPE = 0.477
# The paper's simplified block leaves out the output projection and the LM head.
BLOCK = ("q", "k", "v", "qk", "pv", "up", "gate", "down")
CANDIDATES = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)

Acceleration = Callable[[int], float]


@dataclass(frozen=True)
class Gain:
    """One setting: tokens a step, time of a step over that of plain decoding, and their quotient."""

    candidates: int
    acceleration: float
    latency: float
    speedup: float


def logarithmic(candidates: int) -> float:
    """Tokens per step by the paper's curve, base 2 as we read it, at least 1."""
    return max(1.0, SLOPE * math.log2(candidates))


def block_seconds(shape: ModelShape, work: Work, device: Device, cost: str) -> float:
    """Seconds of the paper's simplified block of one layer."""
    chosen = [product for product in operators(shape, work) if product.name in BLOCK]
    return sum(each.seconds for each in timed(chosen, device, cost))


def gains(
    shape: ModelShape,
    device: Device,
    batch: int = 1,
    context: int = 1024,
    acceleration: Acceleration = logarithmic,
    cost: str = OVERLAPPED,
    candidates: Sequence[int] = CANDIDATES,
) -> list[Gain]:
    """The gain by number of candidates over plain decoding of the same batch: a curve of figures 21 to 23."""
    plain = block_seconds(shape, Work(batch, 1, context), device, cost)
    found = []
    for count in candidates:
        latency = block_seconds(shape, Work(batch, count, context), device, cost) / plain
        kept = acceleration(count)
        found.append(Gain(count, kept, latency, kept / latency))
    return found


def best(found: Sequence[Gain]) -> Gain:
    """The setting with the highest speedup, of equals the smallest."""
    return max(found, key=lambda each: (each.speedup, -each.candidates))
