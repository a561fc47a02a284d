"""Devices by their two limits: bytes a second from memory and floating-point operations a second.

Figures are the makers' for dense 16-bit products with 32-bit sums where they print them, and the paper's for
the three GPUs of its appendix. They are limits: programs reach a part of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from medusa_core.errors import MedusaError

MEGA, GIGA, TERA = 1e6, 1e9, 1e12
_LIMITS = r"(\d+(?:\.\d+)?)\s*(GB|TB)/s[\s,]+(\d+(?:\.\d+)?)\s*T(?:FLOP|FLOPS)?(?:/s)?"
THIS = "this"  # the machine the program runs on, which is measured


@dataclass(frozen=True)
class Device:
    """``bandwidth`` in bytes a second, ``peak`` in FLOP a second, ``memory`` in bytes, 0 where unknown.

    ``cache`` is the largest one on the chip, SRAM that all cores share (a GPU's L2), likewise.
    """

    name: str
    title: str
    bandwidth: float
    peak: float
    memory: float
    note: str = ""
    cache: float = 0

    @property
    def ridge(self) -> float:
        """The operational intensity in FLOP a byte from which on arithmetic is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP a second at an intensity in FLOP a byte: the roofline, min(peak, bandwidth · intensity)."""
        return min(self.peak, self.bandwidth * intensity)


def _device(
    name: str, title: str, gigabytes: float, teraflops: float, memory: float, note: str = "", cache: int = 0
) -> Device:
    """A device; ``cache`` is in MB."""
    return Device(name, title, gigabytes * GIGA, teraflops * TERA, memory * GIGA, note, cache * MEGA)


def known_devices() -> dict[str, Device]:
    """The devices by the names that the command takes."""
    devices = (
        _device("a100", "A100 80 GB PCIe", 1935, 312, 80, "as in the paper", cache=40),
        _device("a40", "A40", 696, 149.7, 48, "as in the paper", cache=6),
        _device("a6000", "RTX A6000", 768, 181, 48, "as in the paper", cache=6),
        _device("rtx3090", "RTX 3090", 936, 71, 24, cache=6),
        _device("rtx4090", "RTX 4090", 1008, 165.2, 24, cache=72),
        _device("h100", "H100 SXM", 3350, 989, 80, cache=50),
        _device("h200", "H200", 4800, 989, 141, cache=50),
        _device("m3-max", "Apple M3 Max", 400, 14.2, 128, "40 GPU cores, 32-bit peak"),
        _device("cpu", "CPU, 8 cores, DDR5", 89.6, 1.15, 64, "AVX2 at 4.5 GHz, two channels, 32-bit peak"),
    )
    return {device.name: device for device in devices}


def find_device(name: str) -> Device:
    """The device of that name, or one by its two limits, as in "900 GB/s, 120 TFLOP/s".

    The memory of the latter is unknown. Raises MedusaError.
    """
    known = known_devices()
    if name in known:
        return known[name]
    limits = re.fullmatch(_LIMITS, name.strip(), re.IGNORECASE)
    if limits is None:
        raise MedusaError(
            f"no device is called {name!r}: use {THIS} or one of {', '.join(known)}, "
            'or give its limits as in "900 GB/s, 120 TFLOP/s"'
        )
    bandwidth = float(limits[1]) * (1000 if limits[2].lower() == "tb" else 1)
    if not (bandwidth > 0 and float(limits[3]) > 0):
        raise MedusaError(f"a limit of {name!r} is 0: give more")
    return _device(
        name, f"{limits[1]} {limits[2].upper()}/s, {limits[3]} TFLOP/s", bandwidth, float(limits[3]), 0
    )
