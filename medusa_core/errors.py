"""The one error a user can cause, its text one line with cause and fix; and what the errors of others say.

A line that is too long loses what others wrote first: long names and paths, then its middle. The cause stands
at its beginning and the fix at its end, and both stay.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Iterable

LONGEST_LINE = 266  # characters; with what a front sets around it, a message stays within 300
_LONGEST_REASON = 120  # characters of what a library says: some name every tensor of a model
_ALIKE = 0.7  # from 0 to 1: how like a known name a misspelt one is
_LONGEST_LIST = 240  # characters of names in a fix
_SEE_HELP = "`generate --help` names all there are"
_SHORT_WORD = 40  # characters that a word keeps in a line that is too long: only a name or a path has more
_CUT = " … "
_UNIT = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})|.", re.DOTALL)  # an escape is one
_OWN = ("medusa_core", "ui", "app")
# What an extra of pyproject.toml brings, by the name that is imported.
_EXTRAS = {
    "gradio": "app", "plotly": "app", "starlette": "app", "accelerate": "train", "peft": "train",
    "bitsandbytes": "quantize", "gguf": "bench", "llama_cpp": "bench",
}  # fmt: skip
_NO_MEMORY = ("out of memory", "allocate memory", "not enough memory", "invalid buffer size")


class MedusaError(ValueError):
    """Bad input or an unsupported situation. Shown as one line on the command line and in the app."""

    def __init__(self, text: str) -> None:
        super().__init__(short_line(text))


class SettingError(MedusaError):
    """A setting out of its range or of another kind; the text begins with the setting's name."""


def one_line(text: str) -> str:
    """The text without line breaks; characters that a terminal or JSON does not take are escaped."""
    return "".join(
        ascii(character)[1:-1] if unicodedata.category(character) in ("Cc", "Cs") else character
        for character in " ".join(text.split())
    )


def short_line(text: str) -> str:
    """The text as one line that a person reads: where it is too long, names in it are shortened first.

    The longest name goes first, and no further than it has to.
    """
    words = one_line(text).split(" ")
    excess = len(" ".join(words)) - LONGEST_LINE
    while excess > 0 and len(longest := max(words, key=len)) > _SHORT_WORD:
        kept = shortened(longest, max(_SHORT_WORD, len(longest) - excess), "…")
        words[words.index(longest)] = kept
        excess -= len(longest) - len(kept)
    return shortened(" ".join(words), LONGEST_LINE)


def shortened(line: str, longest: int, cut: str = _CUT) -> str:
    """The line without its middle where it has more than ``longest`` characters; no escape is cut in two."""
    if len(line) <= longest:
        return line
    units = _UNIT.findall(line)
    half = (longest - len(cut)) // 2
    return _fitting(units, half) + cut + _fitting(units[::-1], half, backwards=True)


def _fitting(units: list[str], room: int, *, backwards: bool = False) -> str:
    """As many of the first units as there is room for; ``backwards`` where they came in reverse."""
    taken: list[str] = []
    for unit in units:
        room -= len(unit)
        if room < 0:
            break
        taken.append(unit)
    return "".join(taken[::-1] if backwards else taken).strip()


def close_name(word: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or an empty one."""
    return next(iter(difflib.get_close_matches(word.lower(), known, n=1, cutoff=_ALIKE)), "")


def name_fix(word: str, known: Iterable[str], words: str = "", without_list: str = _SEE_HELP) -> str:
    """The fix for an unknown name: the one that was meant, or all of them, which ``words`` name.

    Where a line has no room for the whole list, ``without_list`` takes its place.
    """
    names = list(known)
    if close := close_name(word, names):
        return f"did you mean {close}?"
    listed = f"use one of {words or ', '.join(names)}"
    return listed if len(listed) <= _LONGEST_LIST else without_list


def reason_of(error: BaseException) -> str:
    """What the error of a library or of the system says, short enough to stand inside a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}" if "\n" in error.doc.strip() else f"column {error.colno}"
        return f"{error.msg}, {place}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing or unknown"
    words = one_line(str(error)).rstrip(".:") or type(error).__name__
    if callable(errors := getattr(error, "errors", None)):  # pydantic's, whose own text has many lines
        first = errors()[0]
        words = f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip()
    return shortened(words, _LONGEST_REASON)


def missing_package(error: ModuleNotFoundError) -> MedusaError:
    """What to install for a package that is missing. Raises ``error`` again for a module of this project."""
    name = (error.name or "").partition(".")[0]
    if not name or name in _OWN:
        raise error
    what = f"'.[{_EXTRAS[name]}]'" if name in _EXTRAS else "."
    return MedusaError(f"the package {name} is not installed: pip install {what} in the project's folder")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU or on the host: each library has a class of its own for that."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(part in words for part in _NO_MEMORY)


def counted(number: int, noun: str, many: str = "") -> str:
    """ "1 step", "2 steps"; ``many`` where that is not the noun and an s. As in assets/web/text.js."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"
