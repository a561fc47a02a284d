"""Which settings belong to which recipe, and the one call that runs any of them.

Whoever trains (command line, app, experiments) reads the same stream of ``Progress`` records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from medusa_core.config import LoadConfig
from medusa_core.library_messages import quiet_bitsandbytes
from medusa_core.training.config import (
    DirectConfig,
    Medusa1Config,
    Medusa2Config,
    PretrainConfig,
    RunConfig,
    SelfDistillConfig,
)
from medusa_core.training.folder_lock import locked_folder

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress

RECIPES: dict[str, type[RunConfig]] = {
    "pretrain": PretrainConfig,
    "medusa1": Medusa1Config,
    "medusa2": Medusa2Config,
    "direct": DirectConfig,
    "self-distill": SelfDistillConfig,
}


def train(config: RunConfig, end: Callable[[], bool] | None = None) -> Iterator[Progress]:
    """Run the recipe the settings belong to; the last record's ``folder`` is the result.

    ``end`` is asked before the first step and after each: where it says yes, the result is what was learned
    by then. Closing the generator saves a checkpoint and no result. The run folder is this process's until
    the generator ends. Raises MedusaError for settings, data or a base that cannot be used, and where another
    process has the folder.
    """
    quiet_bitsandbytes()
    # Imported when needed: peft and the data pipeline take a second.
    if isinstance(config, SelfDistillConfig):
        from medusa_core.training.self_distill import self_distill as recipe  # noqa: PLC0415
    elif isinstance(config, Medusa2Config):
        from medusa_core.training.medusa2 import medusa2 as recipe  # noqa: PLC0415
    elif isinstance(config, Medusa1Config):
        from medusa_core.training.medusa1 import medusa1 as recipe  # noqa: PLC0415
    else:
        from medusa_core.training.pretrain import pretrain as recipe  # noqa: PLC0415
    with locked_folder(Path(config.out)):
        yield from recipe(config) if end is None else recipe(config, end=end)


def result_of(config: Medusa1Config, folder: Path) -> LoadConfig:
    """How the engine loads what a recipe for heads finished: heads for their base, or a merged model."""
    if (folder / "config.json").is_file() and (folder / "tokenizer_config.json").is_file():
        return LoadConfig(model=str(folder))
    return LoadConfig(model=config.model, heads=str(folder))
