"""What a prompt may hold: text that a person could have written."""

from __future__ import annotations

import re
import unicodedata

from medusa_core.errors import MedusaError

# Control characters but tab and line breaks, and halves of characters, which have no bytes.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def check_text(text: str, what: str = "the prompt") -> str:
    """The text as it is, white space too. Raises MedusaError for an empty text and for control characters."""
    if not text:
        raise MedusaError(f"{what} is empty: write at least one word")
    return check_characters(text, what)


def check_characters(text: str, what: str) -> str:
    """The text as it is. Raises MedusaError for a control character or half a character, with its place.

    Tab and line breaks are text. Bytes of a command line that are not UTF-8 arrive as halves of characters.
    """
    if (found := _REFUSED.search(text)) is None:
        return text
    code, position = f"U+{ord(found[0]):04X}", found.start() + 1
    if unicodedata.category(found[0]) == "Cs":
        raise MedusaError(
            f"{what} has half a character ({code}) at position {position}: paste it again as UTF-8 text"
        )
    raise MedusaError(f"{what} has the control character {code} at position {position}: remove it")
