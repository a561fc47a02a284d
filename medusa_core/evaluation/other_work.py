"""How much of the machine other programs use while something is measured: its times are then too long."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import psutil

from medusa_core.hardware.processor import core_count

BUSY = 0.5  # with so many cores in use by others, figures are doubtful
_LEAST_SECONDS = 0.25  # over less time, the ticks that the system counts in would look like work
_LEFT_OUT = ("idle", "iowait", "guest", "guest_nice")  # Linux counts guests as user and nice already


class OtherWork:
    """Cores that were busy with anything but this process, on average since it was made."""

    def __init__(self) -> None:
        self._begun = _now()

    def record(self) -> dict[str, Any]:
        """Fields for a machine's record: its cores, and how many of them others used."""
        (begun, before), (now, after) = self._begun, _now()
        cores = (after - before) / max(now - begun, _LEAST_SECONDS)
        return {"cores": core_count(), "other_cores_busy": round(max(0.0, cores), 2)}


def is_busy(machine: Mapping[str, Any]) -> bool:
    """Whether other programs disturbed what was measured on the machine of a record."""
    return (machine.get("other_cores_busy") or 0.0) >= BUSY


def busy_words(machine: Mapping[str, Any]) -> str:
    """A sentence on other programs that were busy, empty where there were none."""
    if not is_busy(machine):
        return ""
    return (
        f"Other programs used {machine['other_cores_busy']:.1f} of {machine['cores']} cores meanwhile: "
        "measure again when they have ended."
    )


def _now() -> tuple[float, float]:
    """Seconds of the clock, and those that others have computed on all cores."""
    everything = psutil.cpu_times()._asdict()
    busy = sum(seconds for name, seconds in everything.items() if name not in _LEFT_OUT)
    own = psutil.Process().cpu_times()
    return perf_counter(), busy - own.user - own.system
