"""Keep freed memory in the process, for long runs on a CPU."""

from __future__ import annotations

import ctypes
import sys

# glibc's names for what mallopt sets, from malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Have glibc keep what is freed, where the C library is glibc; returns whether it does from now on.

    A training step frees and asks again for the same large activations. glibc hands blocks above 32 MB back
    to the system, which clears each page at its next use: as long as a product that fills them takes. The
    process then keeps its peak until it ends, so only a process that trains should ask for this.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**28))
    return all(mallopt(name, value) == 1 for name, value in settings)
