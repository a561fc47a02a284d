"""The papers' experiments on one's own model, those that ``paper.json`` names: a file or folder each.

Each module defines

- ``TITLE``: a line of text;
- ``QUALITY``: what its rows' quality means, where they have one;
- ``Settings``: a dataclass of its own settings, which become flags, ``DEFAULTS``: where the flags of all
  experiments have another default in this one, and ``QUICK``: those of a smoke run, where they differ;
- ``TRAINS = True`` where it trains what it compares;
- ``measure(setup, settings) -> Findings``: the measurement, by ``Setup.compare`` or ``Setup.interleave``;
  or, where it says ``SIMULATED = True``, ``simulate(settings) -> Findings``: formulas without a model. In a
  folder they are in its module ``measurement``.

Importing one imports nothing slow: the command line reads the settings of all whenever it starts.
Imports: drafters, engine, evaluation, hardware, loading, longrun, model, text, training, trees.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType


def experiment_names() -> list[str]:
    """The names of all experiments, with a hyphen for each underscore of a module's."""
    return sorted(json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8")))


def load_experiment(name: str) -> ModuleType:
    """The module of an experiment: its title and settings."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def is_simulated(module: ModuleType) -> bool:
    """Whether an experiment is computed from formulas, so that nothing is loaded or run."""
    return getattr(module, "SIMULATED", False)


def load_measurement(name: str) -> ModuleType:
    """The module that measures an experiment."""
    module = load_experiment(name)
    is_folder = hasattr(module, "__path__")
    return importlib.import_module(f"{module.__name__}.measurement") if is_folder else module
