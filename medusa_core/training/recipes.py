"""Which settings belong to which recipe, and the one call that runs any of them.

Whoever trains (command line, app, experiments) reads the same stream of ``Progress`` records.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from medusa_core.config import LoadConfig
from medusa_core.library_messages import quiet_bitsandbytes
from medusa_core.training import config as settings
from medusa_core.training.config import DrafterConfig, RunConfig
from medusa_core.training.folder_lock import locked_folder

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress

# By name: the settings, and the function below this package that runs them.
RECIPES: dict[str, tuple[type[RunConfig], str]] = {
    "medusa1": (settings.Medusa1Config, "medusa1:medusa1"),
    "medusa2": (settings.Medusa2Config, "medusa2:medusa2"),
    "direct": (settings.DirectConfig, "medusa2:medusa2"),
    "self-distill": (settings.SelfDistillConfig, "self_distill:self_distill"),
    "hydra": (settings.HydraConfig, "hydra:hydra"),
    "eagle3": (settings.Eagle3Config, "eagle3:eagle3"),
    "mtp": (settings.MtpConfig, "mtp:mtp"),
    "block": (settings.BlockConfig, "block:block"),
    "tokenswift": (settings.TokenSwiftConfig, "tokenswift:tokenswift"),
}


def train(config: RunConfig, end: Callable[[], bool] = lambda: False) -> Generator[Progress, None, None]:
    """Run the recipe the settings belong to; the last record's ``folder`` is the result.

    ``end`` is asked before the first step and after each: where it says yes, the result is what was learned
    by then. Closing the generator saves a checkpoint and no result. The run folder is this process's until
    the generator ends. Raises MedusaError for settings, data or a base that cannot be used, and where another
    process has the folder.
    """
    quiet_bitsandbytes()
    name = next(name for kind, name in RECIPES.values() if kind is type(config))
    with locked_folder(Path(config.out)):
        # Imported here, since peft and the data pipeline take seconds.
        recipe = pkgutil.resolve_name(f"medusa_core.training.{name}")
        yield from recipe(config, end=end)


def result_of(config: DrafterConfig, folder: Path) -> LoadConfig:
    """How the engine loads what a recipe for heads finished: heads for their base, or a merged model."""
    if (folder / "config.json").is_file() and (folder / "tokenizer_config.json").is_file():
        return LoadConfig(model=str(folder))
    return LoadConfig(model=config.model, heads=str(folder))
