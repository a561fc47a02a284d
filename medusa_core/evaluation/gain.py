"""What a training has brought, as plain numbers that a record can hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """Fresh heads and new heads with the same tree on the same prompts; speedup is over plain decoding."""

    nodes: int
    fresh_tokens_per_step: float
    fresh_speedup: float
    tokens_per_step: float
    speedup: float
    prompts: int
