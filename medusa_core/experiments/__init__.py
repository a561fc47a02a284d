"""The experiments of the papers on a model of one's own, one a folder, found by the folder's name.

The folder's package defines

- ``TITLE``: a line of text, and ``QUALITY``: what its rows' quality means, or None;
- ``Settings``: a dataclass of its own settings, which become flags, ``DEFAULTS``: where the flags of all
  experiments have another default in this one, and ``QUICK``: those of a smoke run;
- ``TRAINS = True`` where it trains what it compares;

and its module ``measurement`` defines

- ``measure(setup, settings) -> Findings``: the measurement, with the decode loop and ``bench.interleave``; -
or, where the package says ``SIMULATED = True``, ``simulate(settings) -> Findings``: formulas without a model.

The package imports nothing slow: the command line reads the settings of all experiments whenever it starts.
Imports: acceptance, drafters, engine, evaluation, hardware, loading, longrun, model, text, training, trees.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def experiment_names() -> list[str]:
    """Names of the experiments there are, with a hyphen for each underscore of a folder's."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if module.ispkg)


def load_experiment(name: str) -> ModuleType:
    """The package of an experiment: its title and settings."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def is_simulated(module: ModuleType) -> bool:
    """Whether an experiment is computed from formulas, so that nothing is loaded or run."""
    return getattr(module, "SIMULATED", False)


def load_measurement(name: str) -> ModuleType:
    """The module that measures an experiment."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}.measurement")
