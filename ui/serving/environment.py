"""Check the environment variables that gradio reads, some of them as soon as it is imported.

gradio answers a wrong one with a traceback, or with a page that hands out more than it should.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from medusa_core.config import LARGEST_PORT
from medusa_core.errors import MedusaError, reason_of

# Name, smallest and largest value of each variable that must be a whole number.
_INTEGERS = {
    "GRADIO_SERVER_PORT": (1, LARGEST_PORT),
    "GRADIO_NUM_PORTS": (1, LARGEST_PORT),
    "GRADIO_NODE_SERVER_PORT": (1, LARGEST_PORT),
    "GRADIO_NODE_NUM_PORTS": (1, LARGEST_PORT),
    "GRADIO_NUM_WORKERS": (0, 0),  # gradio's other servers would answer without this one's checks
    "GRADIO_ANALYTICS_MAX_EVENTS": (1, 10**9),
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": (1, 10**9),
    "GRADIO_DEFAULT_CONCURRENCY_LIMIT": (1, 10**9),
    "GRADIO_DEBUG": (0, 0),  # launch() would not return, and connections would stay without limits
}
_ROOT_PATH = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(/[^\s?#]*)?|/[^\s?#]*")
_SHARE_SERVER = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}")
_UNUSED = ("GRADIO_ALLOWED_PATHS", "GRADIO_WATCH_DIRS", "GRADIO_VIBE_MODE")


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises MedusaError for a variable that gradio cannot use, or that opens what the page keeps closed."""
    for name, (low, high) in _INTEGERS.items():
        text = environment.get(name)
        if name == "GRADIO_DEFAULT_CONCURRENCY_LIMIT" and text in ("", "none"):
            continue  # gradio's words for its default and for no limit
        if text is not None and not (re.fullmatch("[0-9]{1,15}", text) and low <= int(text) <= high):
            wanted = f"{low}" if low == high else f"a whole number from {low} to {high}"
            raise MedusaError(f"the environment variable {name} is {text!r}: set it to {wanted}, or unset it")
    for name in _UNUSED:
        if environment.get(name):
            raise MedusaError(
                f"the environment variable {name} opens files of this machine to the page's visitors, "
                "and the page needs none of them: unset it"
            )
    root = environment.get("GRADIO_ROOT_PATH", "")
    if root and not _ROOT_PATH.fullmatch(root):
        raise MedusaError(
            f"the environment variable GRADIO_ROOT_PATH is {root!r}: "
            "set it to a path such as /medusa, or to the page's whole address"
        )
    share = environment.get("GRADIO_SHARE_SERVER_ADDRESS")
    if share is not None and not _SHARE_SERVER.fullmatch(share):
        raise MedusaError(
            f"the environment variable GRADIO_SHARE_SERVER_ADDRESS is {share!r}: "
            "set it to HOST:PORT, or unset it"
        )
    if folder := environment.get("GRADIO_TEMP_DIR"):
        _require_folder("GRADIO_TEMP_DIR", folder)


def _require_folder(name: str, folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise MedusaError(
            f"the environment variable {name} is {folder!r}, where no file can be written "
            f"({reason_of(error)}): set it to a folder, or unset it"
        ) from error
