"""Medusa decoding: extra heads draft a tree of tokens, one forward pass verifies it.

The engine of the project; it never imports the user interface. Start reading at ``decoding.py``.
``from medusa_core import load, decode, generate`` is the Python interface (``api.py``); the names below are
imported when they are first asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors, which cannot see what __getattr__ gives
    from medusa_core.api import Generation, decode, generate, load
    from medusa_core.custom_generate.generate import load_medusa_heads, medusa_generate
    from medusa_core.engine.chat import Conversation
    from medusa_core.errors import MedusaError

__all__ = [
    "Conversation",
    "Generation",
    "MedusaError",
    "decode",
    "generate",
    "load",
    "load_medusa_heads",
    "medusa_generate",
]

_PUBLIC = {
    "load": "medusa_core.api",
    "decode": "medusa_core.api",
    "generate": "medusa_core.api",
    "Generation": "medusa_core.api",
    "Conversation": "medusa_core.engine.chat",
    "medusa_generate": "medusa_core.custom_generate.generate",
    "load_medusa_heads": "medusa_core.custom_generate.generate",
    "MedusaError": "medusa_core.errors",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Public names beside the usual ones."""
    return sorted({*globals(), *_PUBLIC})
