"""What the Hardware tab measures on the engine, as streams of records that can be stopped."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from medusa_core.errors import counted
from medusa_core.evaluation.other_work import OtherWork
from medusa_core.hardware import this_machine
from medusa_core.hardware.devices import Device
from medusa_core.hardware.operators import PRECISIONS, Work, step_seconds
from medusa_core.hardware.shapes import ModelShape, shape_of_config
from medusa_core.hardware.this_machine import Machine, measure_machine
from medusa_core.model.threads import each_within
from ui.figures.hardware import Growth, Kinds, Passes, Products
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, sentences
from ui.runs.other_work import busy_words

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.forward_times import GrowthPoint

CONTEXT = 256  # cached tokens of timed passes, fewer where the model holds fewer
MOST_ROUNDED = 1.005  # a larger share is shown as more than 100%
SECONDS_BETWEEN = 0.4  # two updates of a chart
STOPPED = Words("Stopped: what was measured stays.")
TOO_LOW = Words("More than 100% says that the limits were measured too low.")


@dataclass(frozen=True)
class Found(Update):
    """What there is to draw so far; None leaves a chart as it is."""

    machine: Machine | None = None
    passes: Passes | None = None
    growth: Growth | None = None
    kinds: Kinds | None = None
    products: Products | None = None


def measure_passes(engine: Engine, flag: StopFlag) -> Generator[Found, None, None]:
    """The limits of this machine, then passes of the loaded model beside what the roofline predicts."""
    from medusa_core.evaluation.forward_times import SIZES, measure_forwards  # noqa: PLC0415 - transformers

    others = OtherWork()
    yield Found(status=Words("Measuring bandwidth and peak of this machine…"))
    shape, number_bytes, machine, device = _measured_limits(engine)
    context = min(CONTEXT, engine.target.context - max(SIZES))
    ratios = []
    for done, times in enumerate(measure_forwards(engine, context), start=1):
        predicted = [
            1000 * step_seconds(shape, Work(1, each.tokens, context + each.tokens, number_bytes), device)
            for each in times
        ]
        passes = Passes(
            tuple(each.tokens for each in times), tuple(each.ms for each in times), tuple(predicted)
        )
        ratios = [least / each.ms for least, each in zip(predicted, times, strict=True)]
        status = Words("Timing passes: round {0}", done)
        yield Found(status=status, machine=machine, passes=passes)
        if flag.stopped:
            yield Found(status=STOPPED)
            return
    words = Words(
        "{0}, {1}: {2} GB/s and {3} TFLOP/s. The roofline predicts {4} of a plain pass and {5} of "
        "the largest; the rest is the framework and what it does not reach.",
        machine.title,
        counted(machine.threads, "thread"),
        f"{device.bandwidth / 1e9:.1f}",
        f"{device.peak / 1e12:.2f}",
        f"{ratios[0]:.0%}",
        f"{ratios[-1]:.0%}",
    )
    yield Found(status=sentences(words, *_doubts(others, ratios[0], ratios[-1])))


def measure_products(engine: Engine, flag: StopFlag) -> Generator[Found, None, None]:
    """The limits of this machine, then the products of the loaded model's steps under them."""
    others = OtherWork()
    yield Found(status=Words("Measuring bandwidth and peak of this machine…"))
    shape, number_bytes, machine, device = _measured_limits(engine)
    works = this_machine.swept_works(number_bytes)
    rows: tuple[tuple[str, int, int, int, float, float], ...] = ()
    measuring = this_machine.measure_products(shape, engine.target.dtype, engine.target.output_device, works)
    for done, speeds in enumerate(each_within(engine.target.on_its_threads, measuring), start=1):
        # They may be faster than the products by which the peak was measured.
        device = replace(device, peak=max([device.peak, *(one.speed for one in speeds)]))
        rows = tuple(
            (one.product.name, one.work.batch, one.work.tokens, one.work.context, one.product.intensity,
             one.speed)
            for one in speeds
        )  # fmt: skip
        status = Words("Timing products: step {0} of {1}", done, len(works))
        products = Products(device.bandwidth, device.peak, rows)
        yield Found(status=status, machine=machine, products=products)
        if flag.stopped:
            yield Found(status=STOPPED)
            return
    shares = {
        name: max(
            (speed / device.attainable(intensity) for own, *_, intensity, speed in rows if own == name),
            default=0.0,
        )
        for name in ("up", "qk")
    }
    words = Words(
        "{0}: the best linear layer reaches {1} of the roof, the best attention {2}.",
        machine.title, f"{shares['up']:.0%}", f"{shares['qk']:.0%}",
    )  # fmt: skip
    yield Found(status=sentences(words, *_doubts(others, *shares.values())))


def measure_cache(engine: Engine, flag: StopFlag, prompt: str, tokens: int) -> Generator[Found, None, None]:
    """A text written twice: with the key-value cache, and reading it from the start for every token."""
    from medusa_core.evaluation.forward_times import measure_growth  # noqa: PLC0415 - transformers

    others, start = OtherWork(), engine.encode(prompt)
    tokens = max(1, min(tokens, engine.target.context - len(start)))
    points, shown_at = [], perf_counter()
    for point in measure_growth(engine, start, tokens):
        points.append(point)
        if flag.stopped:
            break
        if perf_counter() - shown_at > SECONDS_BETWEEN:
            yield Found(status=Words("Token {0} of {1}", len(points), tokens), growth=_growth(points))
            shown_at = perf_counter()
    same = sum(point.same for point in points)
    last = points[-1]
    words = sentences(
        *([STOPPED] if flag.stopped else []),
        Words(
            "At {0} tokens: {1} ms with the cache, {2} ms without. "
            "Both chose the same token {3} of {4} times.",
            last.length,
            f"{last.cached_ms:.1f}",
            f"{last.recomputed_ms:.1f}",
            same,
            len(points),
        ),
        *_doubts(others),
    )
    yield Found(status=words, growth=_growth(points))


def measure_sharing(engine: Engine, flag: StopFlag) -> Generator[Found, None, None]:
    """MHA, GQA and MQA on tiny random models of equal width; the engine only lends its turn."""
    from medusa_core.evaluation.attention_kinds import measure_kinds  # noqa: PLC0415 - transformers

    others = OtherWork()
    rows: tuple[tuple[str, int, int, float], ...] = ()
    yield Found(status=Words("Making three tiny models…"))
    for found in measure_kinds():
        rows = tuple((each.kind, each.length, each.cache_bytes, each.ms) for each in found)
        yield Found(status=Words("Timing after {0} tokens", rows[-1][1]), kinds=Kinds(rows))
        if flag.stopped:
            yield Found(status=STOPPED)
            return
    at_end = {row[0]: row for row in rows[-3:]}
    words = Words(
        "After {0} tokens the cache of MHA takes {1} MB and a token {2} ms; with MQA {3} MB and {4} ms.",
        rows[-1][1],
        f"{at_end['MHA'][2] / 1e6:.1f}",
        f"{at_end['MHA'][3]:.2f}",
        f"{at_end['MQA'][2] / 1e6:.1f}",
        f"{at_end['MQA'][3]:.2f}",
    )
    yield Found(status=sentences(words, *_doubts(others)))


def _doubts(others: OtherWork, *shares: float) -> tuple[str, str]:
    """What speaks against the figures: other programs, and shares of the roofline that it does not allow."""
    too_low = any(share > MOST_ROUNDED for share in shares)
    return busy_words(others.record()), TOO_LOW if too_low else ""


def _measured_limits(engine: Engine) -> tuple[ModelShape, float, Machine, Device]:
    """Shape of the model, bytes per number, and the measured limits of this machine for its dtype."""
    from medusa_core.evaluation.bench import machine_record  # noqa: PLC0415 - transformers takes seconds

    with engine.target.on_its_threads():
        machine = measure_machine(machine_record(engine)["processor"], engine.target.output_device)
    shape = shape_of_config(engine.target.config, engine.info.base)
    number_bytes = PRECISIONS.get(engine.info.dtype, 2)
    device = machine.device(engine.info.dtype, number_bytes * shape.read_parameters)
    return shape, number_bytes, machine, device


def _growth(points: list[GrowthPoint]) -> Growth:
    return Growth(*zip(*((each.length, each.cached_ms, each.recomputed_ms) for each in points), strict=True))
