"""What each matrix product of a step computes and moves (paper tables 5 to 8).

Counts are exact for products that read each operand once and write the result once. The paper's operational
intensities are these at two bytes a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.errors import MedusaError
from medusa_core.hardware.shapes import ModelShape

PREFILL, DECODE, PARALLEL = "prefill", "decode", "parallel decode"
LINEAR, ATTENTION = "linear", "attention"
MOST_BATCH, MOST_TOKENS, MOST_CONTEXT = 65_536, 65_536, 10_000_000


@dataclass(frozen=True)
class Work:
    """What a step is asked for: sequences, tokens read of each, positions attended to, bytes a number.

    ``context`` counts the cached positions and the tokens of the step together. ``weight_bytes`` are those of
    a weight of the layers, where they are quantised; an LM head stays as it is, as in the usual formats.
    Raises MedusaError for a count below 1 or beyond what any machine takes.
    """

    batch: int = 1
    tokens: int = 1
    context: int = 1024
    number_bytes: float = 2
    weight_bytes: float | None = None  # None: as many as any number

    def __post_init__(self) -> None:
        for name, most in (("batch", MOST_BATCH), ("tokens", MOST_TOKENS), ("context", MOST_CONTEXT)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise MedusaError(f"{name} is {value!r}: give a whole number from 1 to {most:,}")
        if not self.number_bytes > 0:
            raise MedusaError(f"a number takes {self.number_bytes} bytes: give more than 0")

    @property
    def phase(self) -> str:
        """prefill where all positions are new, decode for one token, else parallel decode."""
        if self.tokens == 1:
            return DECODE
        return PREFILL if self.tokens >= self.context else PARALLEL


@dataclass(frozen=True)
class Product:
    """One kind of product: ``flops`` and ``moved`` (bytes) of one call, ``calls`` of them in a step."""

    name: str
    kind: str
    flops: float
    moved: float
    calls: int

    @property
    def intensity(self) -> float:
        """Operational intensity in FLOP a byte."""
        return self.flops / self.moved


def linear(
    name: str,
    rows: int,
    width: int,
    out: int,
    number_bytes: float,
    calls: int,
    weight_bytes: float | None = None,
) -> Product:
    """[rows, width] times [width, out]: 2·rows·width·out FLOP; bytes of input, weights and output."""
    moved = number_bytes * rows * (width + out) + (weight_bytes or number_bytes) * width * out
    return Product(name, LINEAR, 2.0 * rows * width * out, moved, calls)


def attention(name: str, shape: ModelShape, work: Work) -> Product:
    """QKᵀ, or PV, which has the same counts: 2·b·n·q·s·d FLOP.

    Bytes of the scores [q, s] and the queries (results) [q, d] of each query head, and of the keys (values)
    [s, d] of each key-value head, read once for all query heads that share it.
    """
    q, s, d = work.tokens, work.context, shape.head_size
    numbers = work.batch * (shape.heads * q * d + shape.kv_heads * s * d)
    flops = 2.0 * work.batch * shape.heads * q * s * d
    moved = score_bytes(shape, work) + work.number_bytes * numbers
    return Product(name, ATTENTION, flops, moved, shape.layers)


def score_bytes(shape: ModelShape, work: Work) -> float:
    """Bytes of one layer's scores, b·n·q·s numbers: QKᵀ writes them and PV reads them.

    FlashAttention (Dao et al., 2022) makes them tile by tile and moves none of them.
    """
    return work.number_bytes * work.batch * shape.heads * work.tokens * work.context


def operators(shape: ModelShape, work: Work) -> list[Product]:
    """The products of a step in their order. The LM head judges all rows, of a prefill the last ones."""
    rows, e, h, layers = work.batch * work.tokens, work.number_bytes, shape.hidden, shape.layers
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    judged = work.batch if work.phase == PREFILL else rows

    def weights(name: str, width: int, out: int) -> Product:
        return linear(name, rows, width, out, e, layers, work.weight_bytes)

    return [
        weights("q", h, queries),
        weights("k", h, keys),
        weights("v", h, keys),
        attention("qk", shape, work),
        attention("pv", shape, work),
        weights("o", queries, h),
        *([weights("gate", h, shape.intermediate)] if shape.gated else []),
        weights("up", h, shape.intermediate),
        weights("down", shape.intermediate, h),
        linear("lm_head", judged, h, shape.vocabulary, e, 1),
    ]
