"""Texts that the server fills with values, sent so that the browser can show them in another language.

The code holds the English. Translations are in `assets/language`, keyed by the English text with `{0}`, `{1}`
for the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self


class Words(str):
    """The English text as a string, with the template and the values it was made from.

    ``english`` is the text where the template does not give it. Formatting or joining it gives a plain
    string: use another ``Words`` to keep the parts apart.
    """

    template: str
    values: tuple[Any, ...]

    def __new__(cls, template: str, *values: Any, english: str = "") -> Self:
        said = english or re.sub(r"\{(\d)\}", lambda place: str(values[int(place[1])]), template)
        words = super().__new__(cls, said)
        words.template = template
        words.values = tuple(each if isinstance(each, str | int | float) else str(each) for each in values)
        return words

    # A run on a borrowed GPU sends its words between processes.
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, str]]:
        return (self.template, *self.values), {"english": str(self)}


def amount(number: int, noun: str, many: str = "") -> Words:
    """The number with its noun, whose plural is ``many``; translations have only the plural."""
    return Words(f"{{0}} {many or noun + 's'}", number, english=f"1 {noun}" if number == 1 else "")


def joined(separator: str, parts: Sequence[str]) -> Words:
    """The parts with the separator between them. A translation takes each part by itself."""
    return Words(separator.join(f"{{{place}}}" for place in range(len(parts))), *parts)


def sentences(*parts: str) -> Words:
    """The texts that are not empty, one after another."""
    return joined(" ", [part for part in parts if part])


def as_data(words: Any) -> Any:
    """What `tell` of assets/web/language.js takes: a string or number, or text, values and English."""
    if not isinstance(words, Words):
        return words
    return {"english": str(words), "text": words.template, "values": [as_data(each) for each in words.values]}
