"""The warning where other programs disturbed what was measured, for every tab that times runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa_core.evaluation.other_work import is_busy
from ui.records.words import Words


def busy_words(machine: Mapping[str, Any]) -> str:
    """A warning where other programs disturbed what was measured on the machine of a record, else nothing."""
    if not is_busy(machine):
        return ""
    return Words(
        "These times are too long: other programs used {0} of {1} cores meanwhile. Measure again when they "
        "have ended.", f"{machine['other_cores_busy']:.1f}", machine["cores"],
    )  # fmt: skip
