"""Texts that the server makes with values in them, sent so that the browser can say them in another language.

English stands in the code. A translation is in `assets/language`, by the English text with `{0}`, `{1}` where
the values stand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self


class Words(str):
    """The English text as a string, with the template and the values it was made from.

    Formatting or joining it gives a plain string: use another ``Words`` to keep the parts apart.
    """

    template: str
    values: tuple[Any, ...]

    def __new__(cls, template: str, *values: Any) -> Self:
        said = re.sub(r"\{(\d)\}", lambda place: str(values[int(place[1])]), template)
        words = super().__new__(cls, said)
        words.template = template
        words.values = tuple(each if isinstance(each, str | int | float) else str(each) for each in values)
        return words

    def __getnewargs__(self) -> tuple[Any, ...]:  # a run on a borrowed GPU sends its words between processes
        return (self.template, *self.values)


def amount(number: int, noun: str, many: str = "") -> Words:
    """The number with its noun, whose plural is ``many``; translations know only plurals."""
    words = Words(f"{{0}} {many or noun + 's'}", number)
    return words if number != 1 else _English(f"1 {noun}", words)


class _English(Words):
    """Words whose English is not what the template would give."""

    def __new__(cls, english: str, words: Words) -> Self:
        said = str.__new__(cls, english)
        said.template, said.values = words.template, words.values
        return said

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), Words(self.template, *self.values))


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
