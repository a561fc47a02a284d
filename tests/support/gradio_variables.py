"""The environment of an app process, without what the tests themselves were started with."""

from __future__ import annotations

import os


def without_gradios(**more):
    """The environment of a process without gradio's own variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRADIO_", "SPACE"))}
    return kept | {"GRADIO_ANALYTICS_ENABLED": "False", "PYTHONUNBUFFERED": "1"} | more
