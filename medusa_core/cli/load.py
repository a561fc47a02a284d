"""What commands do before their first token: load, choose the drafter, say what runs.

A line on the terminal shows how far a load is and disappears at its end. Nothing is written where standard
error is not a terminal.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

from medusa_core.cli.flags import flag_of, read_settings
from medusa_core.config import AUTO_METHOD, NO_HEADS, GenerationConfig, LoadConfig
from medusa_core.drafters import method
from medusa_core.drafters._options import idle_options
from medusa_core.engine import Engine
from medusa_core.evaluation.step_times import asks_for_auto_tree, auto_tree_words, with_step_times
from medusa_core.library_messages import collector_paused
from medusa_core.loading.load import LoadProgress, OnProgress, load_engine

_WITH_SHARE, _WITHOUT = "{desc} {percentage:3.0f}% |{bar:24}|", "{desc} …"


def load_with_line(config: LoadConfig) -> Engine:
    """``load_engine`` with its progress on the terminal. Raises MedusaError."""
    with load_line(sys.stderr) as watch, collector_paused():
        return load_engine(config, watch)


def load_for_runs(
    config: LoadConfig, runs: Iterable[GenerationConfig], *, all_drafters: bool = False
) -> Engine:
    """The engine with the drafters of ``runs``, and with step times where a run has the tree "auto".

    With ``all_drafters`` the runs are those of all methods, and weights may be missing. Raises MedusaError.
    """
    runs = list(runs)
    with load_line(sys.stderr) as watch, collector_paused():
        engine = load_engine(config, watch, methods=None if all_drafters else [run.method for run in runs])
        runs = [engine.with_method(run) for run in runs]
        if any(map(asks_for_auto_tree, runs)):
            watch(LoadProgress("steps", "Measuring the time of a step by tree size, once on this machine"))
            engine = with_step_times(engine)
        return engine


@contextmanager
def load_line(out: TextIO) -> Iterator[OnProgress]:
    """A watcher that writes its stages to ``out``, and takes the line away at the end."""
    # tqdm would not wipe a bar with a delay that a new stage draws before the delay is over.
    with tqdm(
        total=1.0, file=out, disable=not out.isatty(), leave=False, desc="Loading", bar_format=_WITHOUT
    ) as bar:

        def show(stage: LoadProgress) -> None:
            bar.bar_format = _WITHOUT if stage.done is None else _WITH_SHARE
            bar.n = stage.done or 0.0
            bar.set_description_str(stage.message)  # draws it anew

        yield show


def load_for_run(
    args: argparse.Namespace, config: GenerationConfig
) -> tuple[Engine, GenerationConfig, list[str]]:
    """Engine, settings with the drafter that was chosen, notes for below the headline. Raises MedusaError."""
    load = read_settings(LoadConfig, args)
    engine = load_for_runs(load, [config])
    chosen = engine.with_method(config)
    idle = idle_options(chosen).items()
    notes = [f"note: {flag_of(name)} counts for nothing with {choice}" for name, choice in idle]
    if config.method == AUTO_METHOD and not method(chosen.method).has_weights and load.heads != NO_HEADS:
        model = f" --model {shlex.quote(load.model)}" if load.model else ""
        notes.insert(0, f"note: there are no heads, so {chosen.method} drafts: `fit{model}` trains some")
    return engine, chosen, notes


def headline(engine: Engine, config: GenerationConfig) -> str:
    """The line on standard error: ``name · dtype on device · method, rule · tree``."""
    info = engine.info
    loaded = f"{engine.name_for(config)} · {info.dtype} on {info.device}"
    loaded += f" ({info.dtype_reason})" if info.dtype_reason else ""
    run = [f"{config.method}, {config.acceptance}", auto_tree_words(engine, config)]
    return " · ".join(filter(None, [loaded, info.extended, *run]))
