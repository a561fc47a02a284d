"""``roofline``: what each product of a step computes and reads, and how long it takes at best."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.errors import MedusaError, close_name, counted
from medusa_core.hardware.devices import THIS, Device, find_device, known_devices
from medusa_core.hardware.operators import (
    DECODE,
    PARALLEL,
    PREFILL,
    Timed,
    Work,
    kv_cache_bytes,
    longest_text,
    operators,
    phases,
    step_seconds,
    timed,
)
from medusa_core.hardware.shapes import ModelShape, known_shapes, shape_of_config
from medusa_core.words import bytes_words, count_words, flops_words, rate_words, seconds_words, three_digits

if TYPE_CHECKING:
    from rich.table import Table


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "roofline", help="FLOP, bytes and time of a step's products on a device", description=__doc__
    )
    parser.add_argument(
        "--model", default="",
        help=f"{', '.join(known_shapes())}; or folder or hub name of a model; default: the embedded model",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (default: 1)")
    parser.add_argument(
        "--tokens", type=int, default=64, metavar="N",
        help="tokens verified at once; 1 is plain decoding (default: 64)",
    )  # fmt: skip
    parser.add_argument(
        "--context", type=int, default=1024, metavar="N", help="positions attended to (default: 1024)"
    )
    parser.add_argument(
        "--device", default="this",
        help=f"this: measured now, in about a second; or {', '.join(known_devices())} (default: this)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the figures as JSON as the last line")
    parser.set_defaults(run=f"{__name__}:run")


DTYPE, NUMBER_BYTES = "bfloat16", 2


def run(args: argparse.Namespace) -> None:
    """Print the table. Raises MedusaError for settings, models and devices that cannot be used."""
    work = Work(args.batch, args.tokens, args.context, NUMBER_BYTES)
    shape = find_shape(args.model)
    device = _device(args.device, shape)
    _print_table(shape, work, device)
    if args.json:
        print(json.dumps(record(shape, work, device)))


def find_shape(name: str) -> ModelShape:
    """The shape of a known model, or by its config that of a model in a folder or on the hub.

    Raises MedusaError.
    """
    from medusa_core.checkpoints.files import read_config
    from medusa_core.checkpoints.locate import Fetch, embedded_model, locate_model

    if name.lower() in (known := known_shapes()):
        return known[name.lower()]
    if name in ("", EMBEDDED):
        return shape_of_config(read_config(embedded_model()), EMBEDDED)
    close = "" if Path(name).exists() else close_name(name, known)
    try:
        return shape_of_config(read_config(locate_model(name, Fetch(weights=False))), name)
    except MedusaError as error:
        raise MedusaError(f"{error}; did you mean {close}?" if close else str(error)) from error


def record(shape: ModelShape, work: Work, device: Device) -> dict[str, Any]:
    """All figures as plain data. An operator's are those of one call; seconds are the roofline's."""
    return {
        "model": asdict(shape) | {"parameters": shape.parameters, "attention": shape.kind},
        "device": asdict(device) | {"ridge": device.ridge},
        "batch": work.batch,
        "tokens": work.tokens,
        "context": work.context,
        "number_bytes": work.number_bytes,
        "operators": _rows(shape, work, device),
        "phases": {name: _rows(shape, each, device) for name, each in phases(work).items()},
        "step_seconds": {name: step_seconds(shape, each, device) for name, each in phases(work).items()},
        "kv_bytes_per_token": kv_cache_bytes(shape, 1, 1, NUMBER_BYTES),
    }


def _rows(shape: ModelShape, work: Work, device: Device) -> list[dict[str, Any]]:
    return [
        {
            "name": each.product.name,
            "flops": each.product.flops,
            "bytes": each.product.moved,
            "intensity": each.product.intensity,
            "seconds": each.seconds,
            "calls": each.product.calls,
            "limit": "memory" if each.memory_bound else "arithmetic",
        }
        for each in timed(operators(shape, work), device)
    ]


def _device(name: str, shape: ModelShape) -> Device:
    from medusa_core.hardware.processor import cpu_name
    from medusa_core.hardware.this_machine import measure_machine

    if name != THIS:
        return find_device(name)
    return measure_machine(cpu_name()).device(DTYPE, NUMBER_BYTES * shape.read_parameters)


def _print_table(shape: ModelShape, work: Work, device: Device) -> None:
    from medusa_core.cli.tables import console

    out = console()
    of = shape, work, device
    for part in (*_head_lines(*of), _table(*of), *_foot_lines(*of)):
        out.print(part)


def _head_lines(shape: ModelShape, work: Work, device: Device) -> list[str]:
    note = f" ({device.note})" if device.note else ""
    return [
        f"{shape.name}: {count_words(shape.parameters)} parameters, {shape.kind}, "
        f"{NUMBER_BYTES} bytes a number",
        f"{device.title}{note}: {rate_words(device.bandwidth)}, {flops_words(device.peak)}/s; "
        f"compute is the limit from {device.ridge:.0f} FLOP a byte on",
        f"batch {work.batch}, {work.tokens} tokens at once, context {work.context}; figures of one of the "
        f"{shape.layers} layers, F/B: FLOP a byte",
    ]


def _foot_lines(shape: ModelShape, work: Work, device: Device) -> list[str]:
    lines = []
    for name, each in phases(work).items():
        seconds = step_seconds(shape, each, device)
        lines.append(
            f"{name}, {each.tokens} at once: {seconds_words(seconds)} a step, "
            f"{seconds_words(seconds / (each.tokens * each.batch))} a token read"
        )
    cache = kv_cache_bytes(shape, 1, 1, NUMBER_BYTES)
    room = longest_text(shape, device, work.batch, NUMBER_BYTES, NUMBER_BYTES)
    fits = f"texts of up to {room:,} tokens fit beside the weights" if room > 0 else "the weights do not fit"
    if not device.memory:
        fits = "how much memory the device has is not known"
    if device.cache:
        fits += (
            f"; the device's on-chip SRAM, {bytes_words(device.cache)}, holds the keys and values of "
            f"{device.cache // cache:,.0f} tokens, the others are read from its memory"
        )
    return [*lines, f"key-value cache: {bytes_words(cache)} a token; {fits}"]


def _table(shape: ModelShape, work: Work, device: Device) -> Table:
    """One row a product: the step asked for in full, the two others by time and intensity."""
    from medusa_core.cli.tables import new_table

    table = new_table("", pad_edge=False, show_edge=False)
    first = f"{counted(work.tokens, 'token')}\nFLOP"
    for name in (first, "bytes", "time", "F/B", "limit", "decode\ntime", "F/B", "prefill\ntime", "F/B"):
        table.add_column(name, justify="right", no_wrap=True)
    of = {name: timed(operators(shape, each), device) for name, each in phases(work).items()}
    for asked, *others in zip(of[PARALLEL], of[DECODE], of[PREFILL], strict=True):
        product = asked.product
        table.add_row(
            product.name,
            flops_words(product.flops).removesuffix("FLOP"),
            bytes_words(product.moved),
            *_time_and_intensity(asked),
            "memory" if asked.memory_bound else "compute",
            *(cell for each in others for cell in _time_and_intensity(each)),
        )
    return table


def _time_and_intensity(each: Timed) -> tuple[str, str]:
    return seconds_words(each.seconds), three_digits(each.product.intensity)
