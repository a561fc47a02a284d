"""Keeps what libraries say on their own account off the terminal: our progress and our errors are enough.

Imports none of them, so that a command that needs no library does not wait for one.
"""

from __future__ import annotations

import logging
import sys
import warnings


def quiet_libraries() -> None:
    """For a program of ours: no progress bars, no warnings and no notes of the libraries it has imported."""
    quiet_bitsandbytes()
    warnings.filterwarnings("ignore", category=FutureWarning)  # meant for the developers of libraries
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()


def quiet_bitsandbytes() -> None:
    """Errors only. Once imported, as peft does wherever it is installed, it names kernels it could fetch."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
