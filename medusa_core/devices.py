"""Where a model goes and in which dtype. Knows nothing about what the model does.

``auto`` takes CUDA, then MPS, then the CPU; bfloat16 where the hardware multiplies it natively, float32
elsewhere. A model larger than the free memory of the GPU is spread by accelerate (``device_map="auto"``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from medusa_core.errors import MedusaError


@dataclass(frozen=True)
class Placement:
    """Device, dtype, why this dtype, and accelerate's device map when one device is too small."""

    device: torch.device
    dtype: torch.dtype
    reason: str
    device_map: str | None


def place(device: str, dtype: str, folder: Path) -> Placement:
    """Decide for the weights in ``folder``. Raises MedusaError when a device is asked for but missing."""
    chosen = _device(device)
    kind, reason = (getattr(torch, dtype), "as asked") if dtype != "auto" else _auto_dtype(chosen)
    spread = None
    if chosen.type == "cuda":
        needed = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        free, _ = torch.cuda.mem_get_info(chosen)
        spread = "auto" if needed > 0.9 * free else None
    return Placement(chosen, kind, reason, spread)


def _device(name: str) -> torch.device:
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available[name]:
        there = ", ".join(kind for kind, yes in available.items() if yes)
        raise MedusaError(f"no {name} device here: use --device {there}")
    return torch.device(name)


def _auto_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported():
            return torch.bfloat16, "the GPU multiplies bfloat16 natively"
        return torch.float16, "the GPU has no bfloat16 units"
    if device.type == "mps":
        return torch.float16, "float16 is what Apple GPUs are fast at"
    if cpu_has_bf16():
        return (
            torch.bfloat16,
            "the CPU multiplies bfloat16 natively, so a tree costs little more than one token",
        )
    return torch.float32, "the CPU has no bfloat16 units"


def cpu_has_bf16() -> bool:
    """Whether the CPU has AMX or AVX-512 bf16 instructions, as far as torch can tell."""
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)
