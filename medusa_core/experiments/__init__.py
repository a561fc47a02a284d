"""The experiments of the paper on a model of one's own, one a file, found by the file's name.

An experiment module defines

- ``TITLE``: a line of text, and ``QUALITY``: what its rows' quality means, or None;
- ``Settings``: a dataclass of its own settings, which become flags, and ``QUICK``: those of a smoke run;
- ``measure(setup, settings) -> Findings``: the measurement, with the decode loop and ``bench.interleave``.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

_SHARED = {"measure", "quality", "record", "setup", "train_variants", "variants"}


def experiment_names() -> list[str]:
    """Names of the experiments there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def load_experiment(name: str) -> ModuleType:
    """The module of an experiment."""
    return importlib.import_module(f"{__name__}.{name}")
