"""How far a step is from what the machine allows: its bytes, its operations, and the least time they take.

The least time of a phase is the larger of bytes over bandwidth and operations over peak. Both are measured on
the machine it runs on: bandwidth by copies and by reads of as many bytes, the faster of the two. Bytes and
operations are those that no implementation can avoid: each weight in use is read once, the keys and values of
the text are read, and results are written.

N nodes · V vocabulary · A accepted nodes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters import Reading, draft_of
from medusa_core.engine import Engine
from medusa_core.engine.summary import PHASES
from medusa_core.errors import MedusaError
from medusa_core.hardware.devices import Device
from medusa_core.hardware.operators import Work, kv_bytes_per_token, operators
from medusa_core.hardware.shapes import ModelShape, shape_of_config
from medusa_core.hardware.this_machine import Machine, fastest, measure_machine

READ_SECONDS = 0.2
_LARGEST_READ = 2**30  # beyond all caches; memory for a large model's bytes may not be there twice


@dataclass(frozen=True)
class MeanStep:
    """The mean step of ``runs`` texts: nodes a text, committed positions, accepted nodes, and times."""

    nodes: float
    positions: float
    accepted: float
    ms: Mapping[str, float]  # by phase, "total" among them
    runs: int = 1


class Ceilings:
    """Bandwidth and peak of the machine that an engine runs on, measured when they are first asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._machine: Machine | None = None
        self._reads: dict[int, float] = {}  # bytes a second by the bits of the size

    def device(self, working_set: float) -> Device:
        """The device for steps that read ``working_set`` bytes again and again, some perhaps from a cache."""
        target, read = self._engine.target, min(int(working_set), _LARGEST_READ)
        bits = read.bit_length()
        with target.on_its_threads():
            if self._machine is None:
                self._machine = measure_machine(self._engine.info.device, target.output_device)
            if bits not in self._reads:
                self._reads[bits] = read_speed(read, target.output_device)
        found = self._machine.device(str(target.dtype).removeprefix("torch."), working_set)
        # A copy also writes, which a step hardly does, so by copies alone a step could beat its limit.
        return replace(found, bandwidth=max(found.bandwidth, self._reads[bits]))


def read_speed(size: int, device: torch.device, seconds: float = READ_SECONDS) -> float:
    """Bytes a second at which ``size`` bytes are read again and again, the fastest of some times."""
    numbers = torch.ones(max(1, size // torch.float32.itemsize), dtype=torch.float32, device=device)
    return numbers.nbytes / fastest(lambda: torch.dot(numbers, numbers), device, seconds)


def step_limits(
    engine: Engine, config: GenerationConfig, step: MeanStep, ceilings: Ceilings
) -> dict[str, Any]:
    """The entries of a record for the limits of a step, by phase and as a whole.

    There are none for models whose steps the formulas do not hold for.
    """
    try:
        shape = shape_of_config(engine.target.config, engine.info.base)
    except MedusaError:
        return {}
    work = _work(engine, config, shape, step)
    whole = Reading(sum(one.bytes for one in work.values()), sum(one.flops for one in work.values()))
    device = ceilings.device(work["verify"].bytes)
    for one, ms in ((work["verify"], step.ms["verify"]), (whole, step.ms["total"])):
        device = _as_fast_as(one, ms, device)
    limits = _limit(whole, step.ms["total"], device) | {
        "phases": {name: _limit(work[name], step.ms[name], device) for name in PHASES},
        "bandwidth": device.bandwidth,
        "peak": device.peak,
        "bound_by": "memory" if whole.flops < device.ridge * whole.bytes else "arithmetic",
    }
    return {"over_limit": limits["over_limit"], "limits": limits}


def _work(engine: Engine, config: GenerationConfig, shape: ModelShape, step: MeanStep) -> dict[str, Reading]:
    """The least bytes and operations of each phase."""
    target = engine.target
    held = target.held.packing.bytes_each if target.held.packing else target.dtype.itemsize
    nodes = max(1, round(step.nodes))
    products = operators(shape, Work(step.runs, nodes, nodes + round(step.positions), held))
    logits = step.runs * nodes * target.vocab_size
    draft, tree = draft_of(engine.drafts, config), engine.fixed_tree(config)
    depth = 1 if tree is None else max(tree.depths)  # the first head is always asked
    row = kv_bytes_per_token(shape.layers, shape.kv_heads, shape.head_size, target.dtype.itemsize)
    return {
        "propose": draft.reading(depth, step.runs) if draft else Reading(0, 0),
        "verify": Reading(
            sum(one.calls * one.moved for one in products), sum(one.calls * one.flops for one in products)
        ),
        # Each logit is looked at once, each accepted row of the cache is read and written.
        "accept": Reading(logits * target.dtype.itemsize, logits),
        "commit": Reading(2 * step.runs * step.accepted * row, 0),
    }


def _as_fast_as(work: Reading, ms: float, device: Device) -> Device:
    """The device, at least as fast as it did this work: others may have slowed it while it was measured."""
    bandwidth, peak = 1000 * work.bytes / ms, 1000 * work.flops / ms
    return replace(device, bandwidth=max(device.bandwidth, bandwidth), peak=max(device.peak, peak))


def _limit(work: Reading, ms: float, device: Device) -> dict[str, Any]:
    """The work and its least time; ``over_limit`` is None where there is next to nothing to do."""
    least = 1000 * max(work.bytes / device.bandwidth, work.flops / device.peak)
    return {
        "bytes": round(work.bytes),
        "flops": round(work.flops),
        "limit_ms": round(least, 5),
        "over_limit": round(ms / least, 2) if least > 0 else None,
    }
