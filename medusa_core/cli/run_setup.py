"""What ``generate`` and ``chat`` do before their first token: load, choose the drafter, say what runs."""

from __future__ import annotations

import argparse
import shlex
from typing import NamedTuple

from medusa_core.cli.flags import notes_on_flags, read_settings
from medusa_core.cli.progress import load_for_runs
from medusa_core.config import AUTO_METHOD, NO_HEADS, GenerationConfig, LoadConfig
from medusa_core.drafters import method
from medusa_core.engine import Engine
from medusa_core.evaluation.step_times import auto_tree_words


class RunSetup(NamedTuple):
    """An engine, the settings with the drafter that was chosen, and notes for below the headline."""

    engine: Engine
    config: GenerationConfig
    notes: list[str]


def load_for_run(args: argparse.Namespace, config: GenerationConfig) -> RunSetup:
    """Load what the flags name for a run. Raises MedusaError."""
    load = read_settings(LoadConfig, args)
    engine = load_for_runs(load, [config])
    chosen = engine.with_method(config)
    notes = notes_on_flags(chosen)
    if config.method == AUTO_METHOD and not method(chosen.method).has_weights and load.heads != NO_HEADS:
        model = f" --model {shlex.quote(load.model)}" if load.model else ""
        notes.insert(0, f"note: there are no heads, so {chosen.method} drafts: `fit{model}` trains some")
    return RunSetup(engine, chosen, notes)


def headline(engine: Engine, config: GenerationConfig) -> str:
    """The line on standard error: ``name · dtype on device · method, rule · tree``."""
    info = engine.info
    loaded = f"{engine.name_for(config)} · {info.dtype} on {info.device} ({info.dtype_reason})"
    run = [f"{config.method}, {config.acceptance}", auto_tree_words(engine, config)]
    return " · ".join(filter(None, [loaded, info.extended, *run]))
