"""What the browser's side knows of the methods: their titles, marks, settings and colours."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from medusa_core.config import RUN_SETTINGS
from medusa_core.drafters import drafter_names, method, method_names
from medusa_core.replay.colours import drafter_palette
from medusa_core.trace.asked import ALWAYS_HELD


def methods_script() -> str:
    """Defines ``METHODS``, by name, and ``RUN_SETTINGS``, a run's numbers and switches with their defaults.

    ``mark`` is empty for a method that drafts nothing.
    """
    known = {
        name: {
            "title": (found := method(name)).title,
            "mark": found.mark,
            "help": found.help,
            "weights": found.has_weights,
            "sequential": found.sequential,
            "drafting": found.drafting and asdict(found.drafting),
            "settings": [item.name for item in fields(found.settings)],
        }
        for name in method_names()
    }
    settings = dict.fromkeys(ALWAYS_HELD) | RUN_SETTINGS  # the fields of every trace come first
    return (
        f"const METHODS = {json.dumps(known, ensure_ascii=False)};\n"
        f"const RUN_SETTINGS = {json.dumps(settings)};"
    )


def drafter_colours(selector: str, variable: str) -> str:
    """Rules that give ``selector`` with ``data-drafter`` the colour of that drafter's accepted guesses.

    The variable's name with "-soft" behind it is a pale ground of the same colour.
    """
    rules = []
    for dark, theme in ((False, ""), (True, ".dark ")):
        for name in drafter_names():
            colour = drafter_palette(name, dark).accepted
            soft = f"color-mix(in srgb, {colour} {24 if dark else 12}%, transparent)"
            rules.append(
                f'{theme}{selector}[data-drafter="{name}"] '
                f"{{ {variable}: {colour}; {variable}-soft: {soft}; }}"
            )
    return "\n".join(rules) + "\n"


def mark_of(name: str) -> str:
    """The letter on a drafter's guesses; of one that is not known here, its first."""
    return method(name).mark if name in method_names() else name[:1]
