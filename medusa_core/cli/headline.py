"""The line on standard error that says what runs: the model, and the settings of the run."""

from __future__ import annotations

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.evaluation.step_times import auto_tree_words


def headline(engine: Engine, config: GenerationConfig) -> str:
    """``name · dtype on device · method, rule · tree``."""
    info = engine.info
    loaded = f"{engine.name_for(config)} · {info.dtype} on {info.device} ({info.dtype_reason})"
    run = [f"{config.method}, {config.acceptance}", auto_tree_words(engine, config)]
    return " · ".join(filter(None, [loaded, info.extended, *run]))
