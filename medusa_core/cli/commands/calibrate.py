"""What ``calibrate`` does. Its flags are in ``flags``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from medusa_core.cli.flags import check_output_file, read_settings
from medusa_core.cli.progress import load_with_line
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import machine_record
from medusa_core.evaluation.head_accuracy import calibrate_heads
from medusa_core.evaluation.latency import check_request, measure_latency
from medusa_core.evaluation.prompts import chosen_prompts
from medusa_core.trees.budget import LatencyPoint, unsteady


def run(args: argparse.Namespace) -> None:
    """Measure and write. Raises MedusaError for bad input."""
    sizes = read_sizes(args.sizes)
    check_request(sizes, args.rounds)
    if args.max_new_tokens < 1:
        raise MedusaError(f"--max-new-tokens is {args.max_new_tokens}, the smallest is 1: raise it")
    out = check_output_file(args.out, "--out")
    engine = load_with_line(read_settings(LoadConfig, args))
    medusa_draft(engine)  # there must be heads, which is said before the prompts are read
    prompts = chosen_prompts(args, engine)
    with tqdm(total=len(prompts), unit="prompt", desc="accuracies", file=sys.stderr, delay=1) as bar:
        found = calibrate_heads(engine, prompts, args.max_new_tokens, progress=bar.update)
    record = {"base": engine.info.base, "positions": found.positions, "accuracies": found.shares}
    if args.latency:
        # The trees to time are those that a search would choose for what has just been counted.
        points = _timed(with_heads(engine, accuracies=found.shares), prompts, sizes, args.rounds)
        record["latency"] = [point.model_dump(exclude_none=True) for point in points]
    record["machine"] = machine_record(engine) | {"device": engine.info.device, "dtype": engine.info.dtype}
    try:
        out.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise MedusaError(f"cannot write {out} ({error.strerror}): name another file") from error
    print(f"{args.out}: first guesses right {[row[0] for row in found.shares]}")


def read_sizes(text: str) -> list[int]:
    """Tree sizes from "1,2,8". Raises MedusaError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise MedusaError(f"--sizes is {text!r}: write numbers with commas, as in 1,2,8,16") from error


def _timed(
    engine: Engine, prompts: Sequence[Sequence[int]], sizes: Sequence[int], rounds: int
) -> list[LatencyPoint]:
    points: list[LatencyPoint] = []
    with tqdm(unit="run", desc="latency", file=sys.stderr, delay=1) as bar:
        for progress in measure_latency(engine, prompts, sizes, rounds):
            bar.total, points = progress.total, progress.latency
            bar.set_postfix_str(f"{progress.nodes} nodes", refresh=False)
            bar.update()
    _print_table(points)
    if warning := unsteady(points):
        print(f"warning: {warning}", file=sys.stderr)
    return points


def _print_table(points: Sequence[LatencyPoint]) -> None:
    table = Table("nodes", "ms/step", "rounds", "propose", "verify", "accept", "commit", "tokens/step")
    for point in points:
        low, high = point.step_ms_range or (point.step_ms, point.step_ms)
        phases = (point.propose, point.verify, point.accept, point.commit)
        table.add_row(
            str(point.nodes), f"{point.step_ms:.2f}", f"{low:.2f} to {high:.2f}",
            *(f"{ms:.2f}" for ms in phases), f"{point.tokens_per_step:.2f}",
        )  # fmt: skip
    Console(width=max(Console().width, 100)).print(table)
