"""A method as the page asks for it: one drafter of a menu, and a tick whether it also copies from the text.

The engine merges more pairs of drafters (``method_names``); a menu of all of them would be twice as long.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from medusa_core.drafters import PLUS, drafter_names, drafters_of, method

COPYING = "lookup"  # the drafter that the tick adds
COPIES_LABEL = "Also copy from the text"
COPIES_HELP = "what followed where the last words stood before joins the guesses"


def menu_entries() -> list[tuple[str, str]]:
    """(title, name) of each drafter, the one that proposes nothing among them."""
    return [(method(name).title, name) for name in drafter_names()]


def whole_method(drafter: str, copies: bool) -> str:
    """The method's name; the tick counts for nothing where a drafter has no weights to be joined."""
    joined = copies and drafter in drafter_names() and method(drafter).has_weights
    return f"{drafter}{PLUS}{COPYING}" if joined else drafter


def page_methods() -> list[str]:
    """The methods that the page measures together: each drafter, and each that also copies from the text."""
    return list(
        dict.fromkeys(whole_method(name, copies) for copies in (False, True) for name in drafter_names())
    )


def of_choice(names: Collection[str], copies: bool) -> list[str]:
    """The methods that the tick leaves of ``names``: one a drafter, itself where its pair is missing."""
    wanted = {name: whole_method(name, copies) for name in drafter_names()}
    chosen = {whole if whole in names else name for name, whole in wanted.items()}
    return [name for name in names if name in chosen]


def parted_method(name: str) -> dict[str, Any]:
    """What menu and tick hold for a method, by the names of their controls."""
    first, *joining = drafters_of(name)
    return {"method": first, "copies": COPYING in joining}
