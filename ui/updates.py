"""The records that pass between a run and the page. Plain data: no engine, no component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class StopFlag:
    """Raised by the Stop button of one visitor, seen by that visitor's run between two steps."""

    stopped: bool = False


@dataclass(frozen=True)
class Update:
    """One change of the page. None leaves that part as it is; `trace` comes once, with a finished run."""

    message: str | None = None
    status: str | None = None
    badge: str | None = None
    trace: dict[str, Any] | None = None
    problem: bool = False
