"""Choices that are made by trials on this machine, in tenths of a second, and kept for the next start.

Each measurement is a small JSON file in the user's cache folder, which may be deleted at any time: one that
cannot be read or written counts as absent, and no run fails for it. Times of a busy machine are recognised by
their spread: then the usual choice stands, and nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from medusa_core.files import read_text, whole_file
from medusa_core.hardware.processor import cpu_name, instruction_limit, instruction_set
from medusa_core.llama.forward import LlamaForward
from medusa_core.model.forward import Part, Rows

THREADS_VARIABLE = "OMP_NUM_THREADS"
_CPU = torch.device("cpu")
_ROWS = (1, 16)  # rows of a plain step and of a tree
_CALLS = 9  # calls of each candidate, in turn
_STEADY = 1.35  # median over fastest call of each candidate: beyond it the machine is too busy
_SECONDS = 1.0  # time limit of all calls
_WORTH_IT = 1.1  # least gain of fewer threads
_TIMED_BYTES = 512 * 2**20  # bytes of weights beyond which memory sets the pace and all threads help


def fastest_threads(forward: LlamaForward) -> int | None:
    """How many threads make this forward fastest, few for a small model on many cores; None: torch's own.

    A number that the user has set in OMP_NUM_THREADS stays. A large model waits for memory, and needs every
    thread.
    """
    usual, weights = torch.get_num_threads(), forward.weights
    shapes = [list(product.shape) for product in weights.products()]
    size = sum(map(math.prod, shapes)) * weights.dtype.itemsize
    is_given = usual == 1 or THREADS_VARIABLE in os.environ
    if is_given or size > _TIMED_BYTES or not may_measure():
        return None
    key = machine_key() | {"kind": "threads", "of": usual, "shapes": shapes}
    key["dtype"] = str(weights.dtype)
    known = recall(key)
    if isinstance(known, int) and 1 <= known <= usual:
        return known if known < usual else None
    counts = [usual]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    try:
        times = _fastest({count: _forward(forward, count) for count in counts})
    finally:
        torch.set_num_threads(usual)
    if times is None:
        return None
    # Of numbers that are about as fast the largest is taken: longer texts give threads more to do.
    limit = min(times.values()) * _WORTH_IT
    chosen = next(count for count in counts if times[count] <= limit)
    keep(key, chosen)
    return chosen if chosen < usual else None


def _forward(forward: LlamaForward, threads: int) -> Callable[[], object]:
    """A call that runs a plain step's row and a tree's on so many threads."""
    vocabulary = forward.weights.head.shape[0]
    inputs = [Rows.of_text([token % vocabulary for token in range(rows)], _CPU) for rows in _ROWS]

    def run() -> None:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            for rows in inputs:
                forward([Part(rows, forward.new_cache(max(_ROWS)))])

    return run


def _fastest(calls: Mapping[int, Callable[[], object]]) -> dict[int, float] | None:
    """Seconds of the fastest call of each candidate, all in turn; None where the machine is too busy."""
    times: dict[int, list[float]] = {name: [] for name in calls}
    end = perf_counter() + _SECONDS
    for number in range(_CALLS + 1):
        if perf_counter() > end:
            return None
        for name, call in calls.items():
            start = perf_counter()
            call()
            if number:  # the first call pays for allocation and new threads
                times[name].append(perf_counter() - start)
    spread = max(statistics.median(found) / min(found) for found in times.values())
    return {name: min(found) for name, found in times.items()} if spread <= _STEADY else None


FOLDER_VARIABLE = "MEDUSA_CACHE"
MEASURE_VARIABLE = "MEDUSA_MEASURE"  # 0: nothing is measured, and no kept measurement is used


def may_measure() -> bool:
    return os.environ.get(MEASURE_VARIABLE, "") != "0"


def cache_folder() -> Path:
    """Where measurements are kept: MEDUSA_CACHE, or ``medusa`` in the user's cache folder."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medusa"


def machine_key(device: torch.device | None = None) -> dict[str, Any]:
    """What a measurement holds for: the processor, the device, and the libraries that compute."""
    gpu = torch.cuda.get_device_name(device) if device is not None and device.type == "cuda" else ""
    return {
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "instructions": instruction_limit() or instruction_set(),
        "gpu": gpu,
        "torch": torch.__version__,
    }


def recall(key: Mapping[str, Any]) -> Any:
    """What was kept under ``key``, None where there is nothing."""
    try:
        found = json.loads(read_text(_file_of(key)))
        return found["value"] if found["key"] == dict(key) else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def keep(key: Mapping[str, Any], value: Any) -> None:
    """Keep ``value``, which JSON can hold, under ``key``."""
    with suppress(OSError), whole_file(_file_of(key)) as new:
        new.write_text(json.dumps({"key": dict(key), "value": value}), encoding="utf-8")


def forget(key: Mapping[str, Any]) -> None:
    """Delete what was kept under ``key``, if anything was."""
    with suppress(OSError):
        _file_of(key).unlink()


def _file_of(key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:24]
    return cache_folder() / f"{name}.json"
