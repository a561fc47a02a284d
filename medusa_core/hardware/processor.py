"""What this machine computes with, as the system names it: processor, cores, instruction set, GPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

ISA_VARIABLE = "MEDUSA_ISA"  # one of INSTRUCTION_SETS: nothing wider is used
# Widest first, with the flags by which a system says that the processor has it.
INSTRUCTION_SETS = {
    "amx": "amx_bf16",
    "avx512_bf16": "avx512_bf16",
    "avx512": "avx512f",
    "avx2": "avx2",
    "sse2": "sse2",
    "neon_bf16": "bf16",
    "neon": "asimd",
}
# These variables hold torch to the same limit: oneDNN, ATen and MKL read them at their first use.
_TORCH_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
_TORCH_LIMITS = {
    "avx512_bf16": ("AVX512_CORE_BF16", "avx512", "AVX512"),
    "avx512": ("AVX512_CORE", "avx512", "AVX512"),
    "avx2": ("AVX2", "avx2", "AVX2"),
    "sse2": ("SSE41", "default", "SSE4_2"),  # the least that oneDNN and MKL know
}
_CPU_FILE = Path("/proc/cpuinfo")
_GPU_FILES = Path("/proc/driver/nvidia/gpus")


def cpu_name() -> str:
    fallback = platform.machine() if _CPU_FILE.is_file() else platform.processor() or platform.machine()
    return _line_of(_CPU_FILE, "model name") or fallback


def core_count() -> int:
    return psutil.cpu_count() or 1


def processor_flags() -> str:
    """The processor's flags as Linux names them, parted by spaces; what is certain on other systems."""
    flags = _line_of(_CPU_FILE, "flags") or _line_of(_CPU_FILE, "Features") or ""
    if not flags and platform.machine() in ("arm64", "aarch64"):
        return "asimd"  # part of every 64-bit ARM processor
    return flags


def instruction_set() -> str:
    """The widest of INSTRUCTION_SETS that the processor has; "" where none is known."""
    there = processor_flags().split()
    return next((name for name, flag in INSTRUCTION_SETS.items() if flag in there), "")


def instruction_limit() -> str:
    """The set that MEDUSA_ISA holds this processor to where it has a wider one, else ""."""
    names, limit, widest = list(INSTRUCTION_SETS), os.environ.get(ISA_VARIABLE, ""), instruction_set()
    is_less = limit in names and widest in names and names.index(limit) > names.index(widest)
    return limit if is_less else ""


def limit_torch() -> None:
    """Hold torch to what MEDUSA_ISA allows, so that a machine held to less is measured as such throughout.

    It has an effect only before torch has computed anything; variables that are set already stay.
    """
    for name, value in zip(_TORCH_VARIABLES, _TORCH_LIMITS.get(instruction_limit(), ()), strict=False):
        os.environ.setdefault(name, value)


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
