"""What this machine computes with, as the system names it: processor, cores, instruction set, GPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

ISA_VARIABLE = "MEDUSA_ISA"  # one of INSTRUCTION_SETS: nothing wider is used, or named in a record
# Widest first, with the flags by which a system says that the processor has it.
INSTRUCTION_SETS = {
    "amx": "amx_bf16",
    "avx512_bf16": "avx512_bf16",
    "avx512": "avx512f",
    "avx2": "avx2",
    "neon": "asimd",
}
_CPU_FILE = Path("/proc/cpuinfo")
_GPU_FILES = Path("/proc/driver/nvidia/gpus")


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    fallback = platform.machine() if _CPU_FILE.is_file() else platform.processor() or platform.machine()
    return _line_of(_CPU_FILE, "model name") or fallback


def core_count() -> int:
    """Logical cores of the machine."""
    return psutil.cpu_count() or 1


def instruction_set(flags: str | None = None, limit: str | None = None) -> str:
    """The widest of INSTRUCTION_SETS that is there and that the limit allows; "" where none is known.

    ``flags`` are the processor's own unless given, ``limit`` is MEDUSA_ISA.
    """
    if flags is None:
        flags = _line_of(_CPU_FILE, "flags") or _line_of(_CPU_FILE, "Features") or ""
        if not flags and platform.machine() in ("arm64", "aarch64"):
            flags = "asimd"  # part of every 64-bit ARM processor
    limit = os.environ.get(ISA_VARIABLE, "") if limit is None else limit
    names = list(INSTRUCTION_SETS)
    allowed = names[names.index(limit) :] if limit in names else names
    there = flags.split()
    return next((name for name in allowed if INSTRUCTION_SETS[name] in there), "")


def gpu_name() -> str | None:
    """The first NVIDIA GPU as its driver names it, None where there is none; needs no torch."""
    try:
        files = sorted(_GPU_FILES.glob("*/information"))
    except OSError:
        return None
    return next(filter(None, (_line_of(file, "Model") for file in files)), None)


def _line_of(file: Path, key: str) -> str | None:
    """The value of the first line "key : value", None where there is no such line or file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in found if name.strip() == key), None)
