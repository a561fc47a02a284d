"""Gives freed memory back to the system."""

from __future__ import annotations

import ctypes
import sys


def return_freed_memory() -> None:
    """Give what freed tensors took back to the system; glibc would keep it, up to half of a model."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)
