"""``calibrate``: how often each guess of each head is right, and how long a step takes by tree size.

Written as one JSON file, which ``tree search`` and the page read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from medusa_core.cli.flags import add_prompt_flags, add_settings, check_output_file, read_settings
from medusa_core.config import TIMED_ROUNDS, TIMED_SIZES, LoadConfig, whole_numbers
from medusa_core.errors import MedusaError
from medusa_core.evaluation.limits import COUNTING, TIMING, Effort
from medusa_core.library_messages import importing

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.evaluation.measure_heads import HeadMeasurement
    from medusa_core.trees.budget import LatencyPoint


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "calibrate", help="measure the heads' accuracies and the time of a step", description=__doc__
    )
    add_settings(parser, LoadConfig)
    add_prompt_flags(parser)
    parser.add_argument("--max-new-tokens", type=int, default=128, help="tokens a prompt (default: 128)")
    parser.add_argument(
        "--latency", action=argparse.BooleanOptionalAction, default=True,
        help="measure milliseconds of a step against nodes on this machine (default: yes)",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", default=",".join(map(str, TIMED_SIZES)), metavar="N,N,…",
        help="tree sizes to time, the root included; 1 is plain decoding (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=TIMED_ROUNDS, help="timed runs of each size (default: %(default)s)"
    )
    parser.add_argument("--out", default="accuracies.json", help="file to write (default: accuracies.json)")
    parser.set_defaults(run=f"{__name__}:run")


_BARS = {COUNTING: ("accuracies", "prompt"), TIMING: ("latency", "run")}


def run(args: argparse.Namespace) -> None:
    with importing():
        from medusa_core.cli.load import load_with_line
        from medusa_core.evaluation.head_accuracy import heads_of
        from medusa_core.evaluation.latency import check_request
        from medusa_core.evaluation.prompts import chosen_prompts

    sizes = whole_numbers(args.sizes, "sizes")
    check_request(sizes, args.rounds)
    if args.max_new_tokens < 1:
        raise MedusaError(f"--max-new-tokens is {args.max_new_tokens}, the smallest is 1: raise it")
    out = check_output_file(args.out, "--out")
    engine = load_with_line(read_settings(LoadConfig, args))
    _, heads = heads_of(engine)  # raises where there are none, before the prompts are read
    prompts = chosen_prompts(args, engine)
    effort = Effort(args.max_new_tokens, sizes, args.rounds if args.latency else 0)
    found = _measured(engine, prompts, effort)
    try:
        out.write_text(json.dumps(found.record(engine), ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise MedusaError(f"cannot write {out} ({error.strerror}): name another file") from error
    print(f"{args.out}: {heads.label}, first guesses right {[row[0] for row in found.accuracies.shares]}")


def _measured(engine: Engine, prompts: Sequence[Sequence[int]], effort: Effort) -> HeadMeasurement:
    """The final measurement, with a progress bar for each part."""
    from tqdm import tqdm

    from medusa_core.evaluation.measure_heads import measure_heads
    from medusa_core.trees.budget import unsteady

    for part, records in groupby(measure_heads(engine, prompts, effort), key=lambda found: found.part):
        name, unit = _BARS[part]
        with tqdm(unit=unit, desc=name, file=sys.stderr, delay=1) as bar:
            for found in records:
                bar.total = found.total
                if part == TIMING:
                    bar.set_postfix_str(f"{found.nodes} nodes", refresh=False)
                bar.update()
    if effort.rounds:
        _print_table(found.latency)
        if warning := unsteady(found.latency):
            print(f"warning: {warning}", file=sys.stderr)
    return found


def _print_table(points: Sequence[LatencyPoint]) -> None:
    from medusa_core.cli.tables import new_table, wide_console

    names = ("nodes", "ms/step", "rounds", "propose", "verify", "accept", "commit", "tokens/step")
    table = new_table(*names)
    for point in points:
        low, high = point.step_ms_range or (point.step_ms, point.step_ms)
        phases = (point.propose, point.verify, point.accept, point.commit)
        table.add_row(
            str(point.nodes), f"{point.step_ms:.2f}", f"{low:.2f} to {high:.2f}",
            *(f"{ms:.2f}" for ms in phases), f"{point.tokens_per_step:.2f}",
        )  # fmt: skip
    wide_console().print(table)
