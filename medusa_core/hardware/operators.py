"""What each matrix product of a step computes and moves, and how long it takes at best; what a cache takes.

Paper tables 5 to 8 and Appendix G.1; of the cache Shazeer 2019, *Fast Transformer Decoding: One Write-Head is
All You Need*, and Ainslie et al. 2023 for groups. Counts are exact for products that read each operand once
and write the result once. The paper's operational intensities are these at two bytes a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from medusa_core.errors import MedusaError
from medusa_core.hardware.devices import Device
from medusa_core.hardware.shapes import ModelShape, known_shapes

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


def phases(work: Work) -> dict[str, Work]:
    """The three kinds of steps: a prompt as long as the context, one token, and several at once."""
    return {
        PREFILL: replace(work, tokens=work.context),
        DECODE: replace(work, tokens=1),
        PARALLEL: work,
    }


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


# How the time for bytes and the time for arithmetic make the time of a product.
OVERLAPPED, ADDED = "overlapped", "added"
MODEL, DEVICE = "llama-33b", "a100"  # The paper measured 64 candidates with these.


@dataclass(frozen=True)
class Timed:
    """A product on a device: ``seconds`` of one call, and whether memory is its limit."""

    product: Product
    seconds: float
    memory_bound: bool

    @property
    def step_seconds(self) -> float:
        return self.product.calls * self.seconds


def seconds_of(product: Product, device: Device, cost: str) -> float:
    """Seconds of one call.

    ``overlapped`` is the roofline, the larger of bytes over bandwidth and FLOP over peak; ``added`` is the
    two one behind the other, as where nothing is read ahead.
    """
    moving, computing = product.moved / device.bandwidth, product.flops / device.peak
    return max(moving, computing) if cost == OVERLAPPED else moving + computing


def timed(products: Sequence[Product], device: Device, cost: str = OVERLAPPED) -> list[Timed]:
    return [
        Timed(product, seconds_of(product, device, cost), product.intensity < device.ridge)
        for product in products
    ]


def step_seconds(shape: ModelShape, work: Work, device: Device, cost: str = OVERLAPPED) -> float:
    return sum(each.step_seconds for each in timed(operators(shape, work), device, cost))


@dataclass(frozen=True)
class Measured:
    """A product's speed in FLOP a second, as the paper measured it (tables 6 and 8)."""

    name: str
    batch: int
    tokens: int
    context: int
    speed: float

    @property
    def product(self) -> Product:
        work = Work(self.batch, self.tokens, self.context)
        return {each.name: each for each in operators(known_shapes()[MODEL], work)}[self.name]

    @property
    def words(self) -> str:
        return f"{MODEL}, {self.name}, batch {self.batch}, {self.tokens} candidates"


def paper_speeds() -> list[Measured]:
    """The three speeds whose settings the paper prints beside them in its text and tables."""
    return [
        Measured("up", 1, 64, 1024, 76.57e12),
        Measured("up", 16, 64, 1024, 224.71e12),
        Measured("qk", 16, 64, 1024, 54.8e12),
    ]


PRECISIONS = {"float32": 4.0, "bfloat16": 2.0, "8 bit": 1.0, "4 bit": 0.5}  # bytes a number


def kv_bytes_per_token(layers: int, kv_heads: int, head_size: int, number_bytes: float = 2) -> float:
    """Bytes that one token keeps in the cache: 2·L·g·d·e, for keys and values of every layer."""
    return 2 * layers * kv_heads * head_size * number_bytes


def kv_cache_bytes(shape: ModelShape, batch: int, length: int, number_bytes: float = 2) -> float:
    """Bytes of the cache of ``batch`` sequences of ``length`` tokens each."""
    return batch * length * kv_bytes_per_token(shape.layers, shape.kv_heads, shape.head_size, number_bytes)


def longest_text(
    shape: ModelShape, device: Device, batch: int, weight_bytes: float = 2, number_bytes: float = 2
) -> int:
    """Tokens a sequence may have until the device is full; negative where the weights alone do not fit."""
    left = device.memory - shape.parameters * weight_bytes
    return int(left // kv_cache_bytes(shape, batch, 1, number_bytes))


def memory_over_arithmetic(shape: ModelShape, batch: int, length: int) -> float:
    """Numbers moved over multiply-adds in the attention block of one decoding step, Shazeer's ratio.

    Counted exactly, with projections, cache, scores and results. With g = n it behaves as s/h + 1/b and with
    g = 1 as 1/h + 1/b + s/(h·n) + s/(h·d). Around 1 and above, arithmetic waits for memory.
    """
    b, s, h, n, g, d = batch, length, shape.hidden, shape.heads, shape.kv_heads, shape.head_size
    queries, keys = n * d, g * d
    projections = 2 * (h * queries + b * (h + queries)) + 2 * (h * keys + b * (h + keys))
    cache = 2 * b * s * keys
    heads = 2 * b * queries + 3 * b * n * s
    multiplications = b * (2 * h * queries + 2 * h * keys) + 2 * b * n * s * d
    return (projections + cache + heads) / multiplications
