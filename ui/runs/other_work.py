"""Keep other work away from what is measured, or say that there was some: for every tab that times runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from medusa_core.evaluation.other_work import is_busy
from ui.records.words import Words

DRAWING_SECONDS = 0.5  # pause for a browser to draw a chart


def let_browser_draw() -> None:
    """Wait until the reader's browser, which may share these cores, has drawn what it was just sent."""
    time.sleep(DRAWING_SECONDS)


def busy_words(machine: Mapping[str, Any]) -> str:
    """A warning where other programs disturbed what was measured on the machine of a record, else nothing."""
    if not is_busy(machine):
        return ""
    return Words(
        "These times are too long: other programs used {0} of {1} cores meanwhile. Measure again when they "
        "have ended.", f"{machine['other_cores_busy']:.1f}", machine["cores"],
    )  # fmt: skip
