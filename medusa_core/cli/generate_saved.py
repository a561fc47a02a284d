"""What ``generate --save`` does: a long run in a folder, which the same command begins and goes on with."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from medusa_core.cli.flags import check_output_folder
from medusa_core.cli.run_setup import headline
from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.longrun.folder import TEXT
from medusa_core.longrun.memory import size
from medusa_core.longrun.run import SavedRun, saved_run


def check_save(args: argparse.Namespace) -> None:
    """Raise MedusaError for what a saved run leaves no room for, or a folder that cannot be written."""
    if args.trace is not None:
        raise MedusaError(
            "--trace holds every step in memory, --save is for long runs: leave one of them out"
        )
    check_output_folder(args.save, "--save")


def run_saved(
    args: argparse.Namespace,
    engine: Engine,
    prompt: Sequence[int],
    config: GenerationConfig,
    notes: Sequence[str] = (),
) -> None:
    """Begin the run or go on with it; ``notes`` stand below its headline. Raises MedusaError."""
    with saved_run(engine, prompt, config, Path(args.save)) as run:
        lines = [headline(engine, run.config), *notes, run.memory.words(), *run.notes]
        if run.known and run.end is None:
            lines.append(f"going on after {run.known:,} tokens in {args.save}")
        print(*lines, sep="\n", file=sys.stderr)
        stopped: KeyboardInterrupt | None = None
        try:
            _follow(run)
        except KeyboardInterrupt as stop:
            stopped = stop
            run.stop()
            print(
                f"stopped at {len(run.tokens):,} tokens: the same command goes on from {args.save}",
                file=sys.stderr,
            )
        print(_said(run, args.save), file=sys.stderr)
        output = run.result()
    if args.json:
        print(json.dumps(output, ensure_ascii=False))
    if stopped is not None:
        raise stopped


def _follow(run: SavedRun) -> None:
    """Decode to the end, with a bar on a terminal."""
    total, steps = run.config.max_new_tokens, run.steps()
    shown = sys.stderr.isatty()
    with tqdm(
        total=total, initial=run.known, unit="token", file=sys.stderr, disable=not shown, dynamic_ncols=True
    ) as bar:
        try:
            for step in steps:
                bar.set_postfix_str(_rates(run), refresh=False)
                bar.update(len(step.emitted))
        finally:
            steps.close()


def _rates(run: SavedRun) -> str:
    alpha = run.totals.alpha
    words = f"{run.totals.tokens_per_step:.2f} a step"
    return words if alpha is None else f"{words}, α {alpha:.2f}"


def _said(run: SavedRun, folder: str) -> str:
    """What came of it: speed and memory, and where the text lies."""
    totals, end = run.totals, run.end
    words = f"{totals.tokens:,} tokens in {totals.steps:,} steps: {_rates(run)}, "
    words += f"{totals.tokens_per_second:.0f} tokens/s"
    if end is None:
        return words
    memory = end.memory
    return (
        f"{words}, finished by {end.finish_reason}; the text is in {Path(folder) / TEXT}\n"
        f"memory: {size(memory.estimated)} estimated, {size(memory.measured)} measured "
        f"({memory.measured / memory.estimated - 1:+.1%})"
    )
