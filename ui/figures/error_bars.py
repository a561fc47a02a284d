"""Error bars, as plotly takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def errors(values: Sequence[float | None], colour: str) -> dict[str, Any]:
    """Bars of one standard error, where there is one."""
    return {"type": "data", "array": [value or 0 for value in values], "color": colour, "thickness": 1}


def ranges(rounds: Sequence[tuple[float, float, float]], colour: str, thickness: float = 1) -> dict[str, Any]:
    """Bars from the lowest round to the highest one, of each place's (lowest, median, highest)."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - median for _, median, high in rounds],
        "arrayminus": [median - low for low, median, _ in rounds],
        "color": colour,
        "thickness": thickness,
    }
