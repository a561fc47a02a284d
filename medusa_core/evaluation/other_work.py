"""How much of the machine other programs use while something is measured: its times are then too long."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import psutil

BUSY = 0.5  # cores in use by others, from where figures are to be doubted
_IDLE = ("idle", "iowait")
_COUNTED_ELSEWHERE = ("guest", "guest_nice")  # Linux counts them as user and nice already


class OtherWork:
    """Cores that were busy with anything but this process, on average between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._begun: tuple[float, float] | None = None  # seconds of the clock, and of others on all cores
        self._cores: float | None = None

    def begin(self) -> None:
        """The measurement begins."""
        self._begun, self._cores = _now(), None

    def end(self) -> None:
        """It has ended, or been stopped; only the first call after ``begin`` counts."""
        if self._begun is None or self._cores is not None:
            return
        now = _now()
        seconds = now[0] - self._begun[0]
        self._cores = max(0.0, (now[1] - self._begun[1]) / seconds) if seconds > 0 else 0.0

    def record(self) -> dict[str, Any]:
        """For the record of a machine: its cores, and how many of them others used."""
        if self._cores is None:
            return {}
        return {"cores": psutil.cpu_count() or 1, "other_cores_busy": round(self._cores, 2)}


def is_busy(machine: dict[str, Any]) -> bool:
    """Whether other programs disturbed what was measured on the machine of a record."""
    return machine.get("other_cores_busy", 0.0) >= BUSY


def busy_words(machine: dict[str, Any]) -> str:
    """The same in words, empty where the machine was idle otherwise."""
    if not is_busy(machine):
        return ""
    return (
        f"Other programs used {machine['other_cores_busy']:.1f} of {machine['cores']} cores meanwhile: "
        "measure again when they have ended."
    )


def _now() -> tuple[float, float]:
    everything = psutil.cpu_times()._asdict()
    left_out = (*_IDLE, *_COUNTED_ELSEWHERE)
    busy = sum(seconds for name, seconds in everything.items() if name not in left_out)
    own = psutil.Process().cpu_times()
    return perf_counter(), busy - own.user - own.system
