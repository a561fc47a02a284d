"""The two limits of this machine, measured in about a second: bandwidth by copies, peak by products.

Copies have several sizes, since a small model stays in a processor's caches, which are faster than its
memory. A copy of S bytes moves 2·S: it reads and writes. Of all repetitions the fastest counts, which other
programs disturb least.

The products of a step are the points of the paper's figures 9 to 20 (appendix G). As in a step each layer has
operands of its own, which are read one behind the other, so that what a cache holds here it holds there too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

import psutil
import torch

from medusa_core.hardware.devices import THIS, Device
from medusa_core.hardware.operators import LINEAR, Product, Work, operators
from medusa_core.hardware.shapes import ModelShape

SECONDS = 1.0
COPIED = (2**21, 2**24, 2**25, 2**27)  # bytes; the last is larger than usual caches
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
# Rows, width and outputs of the products. Processors differ in whether a square is faster than a layer.
_PRODUCTS = {"cpu": ((768, 768, 768), (1024, 512, 1024))}
_PRODUCTS_ELSEWHERE = ((4096, 4096, 4096),)
_SHARE_OF_COPIES = 0.4  # share of the time spent on copies
BATCHES, LENGTHS, CANDIDATES = (1, 4, 16, 64), (128, 1024, 8192), (1, 16, 64)
_PRODUCT_SECONDS = 0.05  # time for each product
_MOST = {"cpu": (2e10, 2**28)}  # FLOP of a product and bytes of its operands in all layers
_MOST_ELSEWHERE = (1e13, 2**32)


@dataclass(frozen=True)
class Machine:
    """``bandwidths``: bytes a second by bytes copied; ``peaks``: FLOP a second by the dtype's name."""

    title: str
    threads: int
    bandwidths: tuple[tuple[int, float], ...]
    peaks: tuple[tuple[str, float], ...]
    memory: float  # bytes

    def device(self, dtype: str, working_set: float) -> Device:
        """The machine for a model in ``dtype`` whose step reads ``working_set`` bytes again and again.

        Its bandwidth is that of the smallest copy of at least that size, source and target together.
        """
        larger = [speed for size, speed in self.bandwidths if 2 * size >= working_set]
        peaks = dict(self.peaks)
        # Where the processor has no products of a dtype, torch's are slower than those of widened numbers.
        peak = max(peaks.get(dtype, max(peaks.values())), peaks.get("float32", 0.0))
        return Device(
            THIS, self.title, larger[0] if larger else self.bandwidths[-1][1],
            peak, self.memory, f"measured with {self.threads} threads",
        )  # fmt: skip


def measure_machine(title: str, device: torch.device | None = None, seconds: float = SECONDS) -> Machine:
    """Measure the processor, or the GPU that ``device`` names, with the threads torch uses now."""
    device = device or torch.device("cpu")
    share = seconds * _SHARE_OF_COPIES / len(COPIED)
    bandwidths = tuple((size, _copied_per_second(size, device, share)) for size in COPIED)
    share = seconds * (1 - _SHARE_OF_COPIES) / len(DTYPES)
    peaks = []
    for dtype in DTYPES:
        with suppress(RuntimeError):  # a dtype that this device does not multiply
            peaks.append((str(dtype).removeprefix("torch."), _flop_per_second(dtype, device, share)))
    return Machine(title, torch.get_num_threads(), bandwidths, tuple(peaks), _memory(device))


def _copied_per_second(size: int, device: torch.device, seconds: float) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / fastest(lambda: target.copy_(source), device, seconds)


def _flop_per_second(dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    sizes = _PRODUCTS.get(device.type, _PRODUCTS_ELSEWHERE)
    return max(_speed_of(*size, dtype, device, seconds / len(sizes)) for size in sizes)


def _speed_of(
    rows: int, width: int, outputs: int, dtype: torch.dtype, device: torch.device, seconds: float
) -> float:
    left = torch.ones(rows, width, dtype=dtype, device=device)
    right = torch.ones(width, outputs, dtype=dtype, device=device)
    result = torch.empty(rows, outputs, dtype=dtype, device=device)
    return 2 * rows * width * outputs / fastest(lambda: torch.mm(left, right, out=result), device, seconds)


def fastest(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Seconds of the fastest of the calls that fit into the time, at least one after a warm-up call."""
    end = perf_counter() + seconds
    best = float("inf")
    with torch.inference_mode():
        work()
        while best == float("inf") or perf_counter() < end:
            _finish(device)
            begun = perf_counter()
            work()
            _finish(device)
            best = min(best, perf_counter() - begun)
    return best


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(psutil.virtual_memory().total)


@dataclass(frozen=True)
class ProductSpeed:
    """A product of a step and the speed of one call in FLOP a second."""

    product: Product
    work: Work
    speed: float


def swept_works(number_bytes: float) -> list[Work]:
    """The steps to measure, plain decoding among them: the lengths do not matter to a linear layer."""
    return [
        Work(batch, tokens, tokens + length, number_bytes)
        for tokens in CANDIDATES for length in LENGTHS for batch in BATCHES
    ]  # fmt: skip


def measure_products(
    shape: ModelShape, dtype: torch.dtype, device: torch.device, works: Sequence[Work]
) -> Generator[list[ProductSpeed], None, None]:
    """The MLP's first layer and QKᵀ of each step; yields what is known after each step.

    What takes too long or too much memory here is left out, and a linear layer is timed once for its rows.
    """
    flops, most = _MOST.get(device.type, _MOST_ELSEWHERE)
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

            taken = fastest(step, device, _PRODUCT_SECONDS) / product.calls
            found.append(ProductSpeed(product, work, product.flops / taken))
            if product.kind == LINEAR:
                speeds[product.flops] = product.flops / taken
        yield list(found)


def _operands(
    product: Product, shape: ModelShape, work: Work, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """A linear layer's [rows, h] and [h, i]; QKᵀ's, with keys shared, [b·g, n/g·q, d] and [b·g, d, s]."""
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    if product.kind == LINEAR:
        sizes = (work.batch * work.tokens, shape.hidden), (shape.hidden, shape.intermediate)
    else:
        heads = work.batch * shape.kv_heads
        queries = shape.heads // shape.kv_heads * work.tokens
        sizes = (heads, queries, shape.head_size), (heads, shape.head_size, work.context)
    left, right = (torch.ones(size, dtype=dtype, device=device) for size in sizes)
    return left, right
