"""Turns the page to one of its parts, through the place that it stands in."""

from __future__ import annotations

from typing import Any

PLACE_OF = {
    "Side by side": "Compare", "Methods": "Compare",
    "Speed": "Measure", "Hardware": "Measure",
    "Trees": "Lab", "Train": "Lab", "Experiments": "Lab",
}  # fmt: skip


def turn_to(page: Any, part: str) -> None:
    """Open a part by its English name."""
    for name in (PLACE_OF.get(part), part):
        if name is not None:
            page.get_by_role("tab", name=name, exact=True).click()


def unfold(page: Any) -> None:
    """Show what Watch folds away: examples, recorded runs, the other settings, the view's tools."""
    page.locator("#decode-more input").check()
