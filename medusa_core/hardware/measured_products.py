"""Speeds of a step's matrix products on this machine: the points of figures 9 to 20 (paper, appendix G).

Linear layers by batch and candidates, attention by batch, length and candidates. As in a step each layer has
operands of its own, which are read one behind the other, so that what a cache holds here it holds there too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import torch

from medusa_core.hardware.operators import LINEAR, Product, Work, operators
from medusa_core.hardware.shapes import ModelShape
from medusa_core.hardware.this_machine import fastest

BATCHES, LENGTHS, CANDIDATES = (1, 4, 16, 64), (128, 1024, 8192), (1, 16, 64)
SECONDS = 0.05  # of each product
MOST = {"cpu": (2e10, 2**28)}  # FLOP of a product and bytes of its operands in all layers
MOST_ELSEWHERE = (1e13, 2**32)


@dataclass(frozen=True)
class ProductSpeed:
    """A product of a step and the speed of one call in FLOP a second."""

    product: Product
    work: Work
    speed: float


def swept_works(number_bytes: float) -> list[Work]:
    """The steps that are asked, plain decoding among them: the lengths do not matter to a linear layer."""
    return [
        Work(batch, tokens, tokens + length, number_bytes)
        for tokens in CANDIDATES for length in LENGTHS for batch in BATCHES
    ]  # fmt: skip


def measure_products(
    shape: ModelShape,
    dtype: torch.dtype,
    device: torch.device,
    works: Sequence[Work],
    seconds: float = SECONDS,
) -> Generator[list[ProductSpeed], None, None]:
    """The MLP's first layer and QKᵀ of each step; yields what is known after each step.

    What takes too long or too much memory here is left out, and a linear layer is timed once for its rows.
    """
    flops, most = MOST.get(device.type, MOST_ELSEWHERE)
    found: list[ProductSpeed] = []
    speeds: dict[float, float] = {}  # a linear layer has one speed for each number of rows
    seen: set[tuple[str, Work]] = set()
    for work in works:
        for product in operators(shape, work):
            place = product.name, replace(work, context=1) if product.kind == LINEAR else work
            if product.name not in ("up", "qk") or place in seen:
                continue
            seen.add(place)
            if product.flops > flops or product.calls * product.moved > most:
                continue
            if product.kind == LINEAR and product.flops in speeds:
                found.append(ProductSpeed(product, work, speeds[product.flops]))
                continue
            pairs = [_operands(product, shape, work, dtype, device) for _ in range(product.calls)]

            def step(pairs: list[tuple[torch.Tensor, torch.Tensor]] = pairs) -> None:
                for left, right in pairs:
                    torch.matmul(left, right)

            taken = fastest(step, device, seconds) / product.calls
            found.append(ProductSpeed(product, work, product.flops / taken))
            if product.kind == LINEAR:
                speeds[product.flops] = product.flops / taken
        yield list(found)


def _operands(
    product: Product, shape: ModelShape, work: Work, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a linear layer [rows, h] and [h, i]; of QKᵀ, with keys shared, [b·g, n/g·q, d] and [b·g, d, s]."""
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    if product.kind == LINEAR:
        sizes = (work.batch * work.tokens, shape.hidden), (shape.hidden, shape.intermediate)
    else:
        heads = work.batch * shape.kv_heads
        queries = shape.heads // shape.kv_heads * work.tokens
        sizes = (heads, queries, shape.head_size), (heads, shape.head_size, work.context)
    left, right = (torch.ones(size, dtype=dtype, device=device) for size in sizes)
    return left, right
