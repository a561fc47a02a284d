"""What ``bench`` does. Its flags are in ``flags``."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from medusa_core.cli.flags import read_run_settings, read_settings
from medusa_core.cli.progress import load_with_line
from medusa_core.config import LoadConfig
from medusa_core.drafters import method_names
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import BASELINE, TRANSFORMERS, run_bench
from medusa_core.evaluation.prompts import chosen_prompts

_COLUMNS = (
    "method",
    "tokens/s",
    "spread",
    "tokens/ step",
    "nodes",
    "ms/ step",
    "pro- pose",
    "ver- ify",
    "ac- cept",
    "com- mit",
    "over- head",
    f"speedup over {BASELINE}",
    "same output",
)


def run(args: argparse.Namespace) -> None:
    """Measure and print a table. Raises MedusaError for bad input."""
    methods = _methods(args.methods)
    if args.runs < 1:
        raise MedusaError(f"--runs is {args.runs}, the smallest is 1: raise it")
    config = read_run_settings(args)
    engine = load_with_line(read_settings(LoadConfig, args))
    prompts = chosen_prompts(args, engine)
    total = args.runs * len(prompts) * len(methods)
    with tqdm(total=total, unit="run", file=sys.stderr, delay=1) as bar:  # so that an error stands alone

        def progress(name: str) -> None:
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        record = run_bench(engine, prompts, methods, config, args.runs, progress)
    _print_table(record)
    if args.json:
        print(json.dumps(record, ensure_ascii=False))


def _methods(text: str) -> list[str]:
    methods = [name.strip() for name in text.split(",")]
    known = [*method_names(), TRANSFORMERS]
    unknown = [name for name in methods if name not in known]
    if unknown or len(set(methods)) != len(methods):
        raise MedusaError(f"--methods is {text!r}: use each of {', '.join(known)} at most once")
    return methods


def _print_table(record: dict) -> None:
    console = Console(width=max(Console().width, 118))
    machine, model, settings = record["machine"], record["model"], record["settings"]
    console.print(
        f"{model['name']} · {model['dtype']} on {model['device']} · {machine['processor']}, "
        f"{machine['threads']} threads · {settings['prompts']} prompts × {settings['runs']} runs"
    )
    console.print(model["forward"])
    table = Table(*_COLUMNS)
    for name, m in record["methods"].items():
        low, high = m["tokens_per_second_range"]
        phases = m.get("phase_ms", {})
        table.add_row(
            name,
            f"{m['tokens_per_second']:.1f}",
            f"{low:.0f} to {high:.0f}",
            f"{m['tokens_per_step']:.2f}",
            str(m.get("tree_nodes", "")),
            _number(m.get("step_ms")),
            *(_number(phases.get(phase)) for phase in ("propose", "verify", "accept", "commit")),
            _number(m.get("overhead")),
            _number(m.get("speedup")),
            m.get("identical_outputs", ""),
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
