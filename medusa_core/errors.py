"""The one error a user can cause, its text one line with cause and fix; and what the errors of others say."""

from __future__ import annotations

import json
import unicodedata

_LONGEST = 200  # characters of what a library says: some name every tensor of a model
_NO_MEMORY = ("out of memory", "allocate memory", "not enough memory", "invalid buffer size")


class MedusaError(ValueError):
    """Bad input or an unsupported situation. Shown as one line on the command line and in the app."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def one_line(text: str) -> str:
    """The text without line breaks; what no terminal or no JSON takes, as in an odd name, is escaped."""
    return "".join(
        ascii(character)[1:-1] if unicodedata.category(character) in ("Cc", "Cs") else character
        for character in " ".join(text.split())
    )


def reason_of(error: BaseException) -> str:
    """What the error of a library or of the system says, short enough to stand inside a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, line {error.lineno}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing or unknown"
    words = one_line(str(error)).rstrip(".:") or type(error).__name__
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU or on the host: each library has a class of its own for that."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(part in words for part in _NO_MEMORY)
