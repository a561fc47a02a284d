"""Numbers with their noun: "1 step", "2 steps". The page's own half of this is in assets/web/text.js."""

from __future__ import annotations


def counted(number: int, noun: str, many: str = "") -> str:
    """The number and the noun in the form that goes with it; ``many`` where that is not the noun and an s."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"
