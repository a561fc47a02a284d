"""How long products take at best: the roofline, and a step as the sum of its products. Paper Appendix G.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusa_core.hardware.devices import Device
from medusa_core.hardware.operators import Product, Work, operators
from medusa_core.hardware.shapes import ModelShape, known_shapes

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
        """Seconds of all its calls in a step."""
        return self.product.calls * self.seconds


def seconds_of(product: Product, device: Device, cost: str = OVERLAPPED) -> float:
    """Seconds of one call.

    ``overlapped`` is the roofline, the larger of bytes over bandwidth and FLOP over peak; ``added`` is the
    two one behind the other, as where nothing is read ahead.
    """
    moving, computing = product.moved / device.bandwidth, product.flops / device.peak
    return max(moving, computing) if cost == OVERLAPPED else moving + computing


def timed(products: Sequence[Product], device: Device, cost: str = OVERLAPPED) -> list[Timed]:
    """Each product with its time."""
    return [
        Timed(product, seconds_of(product, device, cost), product.intensity < device.ridge)
        for product in products
    ]


def step_seconds(shape: ModelShape, work: Work, device: Device, cost: str = OVERLAPPED) -> float:
    """Seconds of a forward pass: its products one after the other, nothing else."""
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
        """The counts of what was measured."""
        work = Work(self.batch, self.tokens, self.context)
        return {each.name: each for each in operators(known_shapes()[MODEL], work)}[self.name]

    @property
    def words(self) -> str:
        """Which product, in which step."""
        return f"{MODEL}, {self.name}, batch {self.batch}, {self.tokens} candidates"


def paper_speeds() -> list[Measured]:
    """The three speeds whose settings the paper prints beside them in its text and tables."""
    return [
        Measured("up", 1, 64, 1024, 76.57e12),
        Measured("up", 16, 64, 1024, 224.71e12),
        Measured("qk", 16, 64, 1024, 54.8e12),
    ]
