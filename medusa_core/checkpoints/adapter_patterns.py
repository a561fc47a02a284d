"""Patterns in an adapter's config, tried where they can do no harm before peft uses them.

peft matches them against the name of every module, and an untrusted regular expression may need exponential
time. So each is first run on the same names in a process of its own with a time limit of some seconds; what
ends there in time also ends here, since it is the same work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from medusa_core.errors import MedusaError, shortened

SECONDS = 10.0  # for all of them; those of real adapters take milliseconds
_FIX = "write the names of modules instead, or use another adapter"

# Prints the place and the fault of the first expression that is none.
_TRIAL = """
import json, re, sys
patterns, names = json.load(sys.stdin)
for place, pattern in patterns:
    try:
        expression = re.compile(pattern)
    except Exception as error:
        print(json.dumps([place, str(error)]))
        break
    for name in names:
        expression.match(name)
"""


def check_patterns(config: dict[str, Any], names: Sequence[str], source: str) -> None:
    """Raise MedusaError for a pattern that is no regular expression or does not end on ``names``."""
    patterns = list(_patterns(config))
    if not patterns:
        return
    try:
        # Isolated, so that nothing that lies in the working folder runs.
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRIAL],
            input=json.dumps([patterns, list(names)]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MedusaError(
            f"{source}: its {_keys(patterns)} takes more than {SECONDS:.0f} s to compare with the model's "
            f"modules: {_FIX}"
        ) from error
    if done.stdout:
        place, fault = json.loads(done.stdout)
        raise MedusaError(f"{source}: {place} is no pattern ({shortened(fault, 80)}): {_FIX}")
    if done.returncode:
        raise MedusaError(f"{source}: its {_keys(patterns)} cannot be compared with the modules: {_FIX}")


def _keys(patterns: Sequence[tuple[str, str]]) -> str:
    return " or ".join(dict.fromkeys(place for place, _ in patterns))


def _patterns(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where a pattern stands in a config and the expression that peft makes of it. Names are none."""
    for key in ("target_modules", "exclude_modules"):
        if isinstance(value := config.get(key), str) and value != "all-linear":
            yield key, rf"(?:{value})\Z"
    for key, form in (
        ("modules_to_save", r"(^|.*\.){}($|\..*)"),
        ("layers_pattern", r"(?:^|.*?\.){}\.(?P<idx>\d+)\."),
        ("rank_pattern", r"(.*\.)?({})$"),
        ("alpha_pattern", r"(.*\.)?({})$"),
    ):
        value = config.get(key) or ()
        for one in [value] if isinstance(value, str) else value if isinstance(value, list | dict) else ():
            if isinstance(one, str) and not one.replace("_", "").isalnum():
                yield key, form.replace("{}", one)
