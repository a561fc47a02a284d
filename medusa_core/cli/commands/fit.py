"""``fit``: from a model to heads that speed it up, in one line: self-distil, train, calibrate, measure.

The time and memory it will take are printed first, from a short probe of this machine. The same command again
goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from medusa_core.cli.flags import add_settings, check_output_folder, read_settings
from medusa_core.cli.progress import StageBars, going_on_later
from medusa_core.library_messages import importing
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.folder_lock import locked_folder
from medusa_core.words import bytes_words, count_words

if TYPE_CHECKING:
    from medusa_core.training.fit.run import Prepared


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "fit", help="fit heads to your own model: the whole recipe in one line", description=__doc__
    )
    add_settings(parser, FitConfig)
    parser.add_argument("--plan", action="store_true", help="print the estimate of time and memory, and stop")
    parser.set_defaults(run=f"{__name__}:run")


def run(args: argparse.Namespace) -> None:
    """Plan, fit, and print what was gained. Raises MedusaError for bad input."""
    with importing():
        from medusa_core.training.fit.run import prepare, run_fit

    config = read_settings(FitConfig, args)
    check_output_folder(config.out, "--out")
    if config.device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"  # the recipes ask accelerate where to run
    with going_on_later(config.out), locked_folder(Path(config.out)):
        with StageBars() as bars:
            prepared = prepare(config, bars.update)
        _print_estimate(config, prepared)
        if args.plan:
            return
        with StageBars() as bars:
            report = run_fit(config, prepared, bars.update)
    _print_report(report, Path(config.out))


def _print_estimate(config: FitConfig, prepared: Prepared) -> None:
    """Sizes, time by stage, memory by stage beside what is free."""
    from medusa_core.cli.tables import new_table, wide_console

    plan, shape, console = prepared.plan, prepared.shape, wide_console()
    heads = f"{config.heads} heads" + (" that share the LM head" if config.share_lm_head else "")
    title = "the plan made before; goes on" if prepared.resumed else "estimated"
    print(
        f"{config.model or 'the embedded model'}: {count_words(shape.parameters)} parameters, width "
        f"{shape.width}, {shape.vocabulary:,} tokens; {heads}, {config.recipe}"
    )
    table = new_table("stage", "what", "about", padding=(0, 1), title=f"Time, {title}", title_justify="left")
    batch = f"{plan.batch_tokens:,} a step"
    if plan.pass_tokens < plan.batch_tokens:
        batch += f" in {plan.batch_tokens // plan.pass_tokens} passes"
    work = {
        "probe": "a batch of answers, a few training steps",
        "answers": f"{plan.answers:,} texts by the model itself, {plan.rates.answers:,.0f} tokens/s",
        "heads": f"{plan.tokens:,} training tokens, {batch}, {plan.rates.heads:,.0f} tokens/s",
        "heads and adapter": f"{plan.joint_tokens:,} training tokens, {plan.rates.joint or 0:,.0f} tokens/s",
        "calibration and measuring": f"{plan.heldout_prompts} prompts each at most, {plan.heldout_tokens} "
        f"tokens; plain decoding {plan.rates.decoding:,.0f} tokens/s",
    }
    for stage, seconds in plan.seconds.items():
        table.add_row(stage, work[stage], _duration(seconds))
    table.add_row("all", f"asked for {config.minutes:g} min", _duration(plan.total_seconds))
    console.print(table)
    table = new_table(
        "stage", "base", "heads", "gradients,\noptimizer", "activations", "in all",
        padding=(0, 1), title=f"Memory; {bytes_words(prepared.free)} are free", title_justify="left",
    )  # fmt: skip
    for need in prepared.memory:
        parts = (need.base, need.heads, need.optimizer, need.activations, need.total)
        table.add_row(need.stage, *map(bytes_words, parts))
    console.print(table)
    for note in prepared.notes:
        print(f"note: {note}")
    sys.stdout.flush()


def _print_report(report: dict, out: Path) -> None:
    from medusa_core.cli.tables import new_table, wide_console
    from medusa_core.training.fit.report import equality
    from medusa_core.training.fit.run import FITTED

    record = report["measured"]
    plain, medusa = record["methods"]["none"], record["methods"]["medusa"]
    shares = " ".join(f"{row[0]:.2f}" for row in report["accuracies"])
    print(
        f"first guesses of the heads are right {shares} of the time, over {report['positions']:,} positions"
    )
    names = ("", "nodes", "tokens/step", "ms/step", "tokens/s", "overhead", "speedup")
    table = new_table(*names)
    low, high = medusa["speedup_range"]
    table.add_row(
        "plain decoding", "1", f"{plain['tokens_per_step']:.2f}", f"{plain['step_ms']:.2f}",
        f"{plain['tokens_per_second']:.1f}", "1.00", "1.00",
    )  # fmt: skip
    table.add_row("fresh heads", str(report["tree"]["nodes"]), f"{record['fresh_tokens_per_step']:.2f}")
    table.add_row(
        "fitted heads", str(report["tree"]["nodes"]), f"{medusa['tokens_per_step']:.2f}",
        f"{medusa['step_ms']:.2f}", f"{medusa['tokens_per_second']:.1f}", f"{medusa['overhead']:.2f}",
        f"{medusa['speedup']:.2f}\n{low:.2f}–{high:.2f}",
    )  # fmt: skip
    wide_console().print(table)
    print(equality(record))
    for line in (report["verdict"], *report["advice"], f"{out / FITTED} holds the result. To use it:"):
        print(line)
    for command in report["commands"]:
        print(f"  {command}")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
