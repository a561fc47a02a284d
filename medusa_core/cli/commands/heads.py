"""``heads init`` and ``heads check``: fresh heads for any model; whether heads and base belong together."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys

from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.cli.flags import add_settings, check_output_folder, read_settings
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, counted
from medusa_core.library_messages import importing
from medusa_core.words import bytes_words


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("heads", help="make fresh heads, check heads", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser(
        "init", help="fresh heads for a model, ready for train",
        description="Fresh heads: copies of the model's LM head behind blocks that do nothing yet.",
    )  # fmt: skip
    init.add_argument(
        "--model", default="", help="folder or hub name[@revision] of the base; default: the embedded model"
    )
    init.add_argument("--num-heads", type=int, default=5, metavar="K", help="number of heads (default: 5)")
    init.add_argument("--layers", type=int, default=1, metavar="L", help="blocks of a head (default: 1)")
    init.add_argument(
        "--out", default="runs/heads", metavar="DIR", help="folder to write (default: runs/heads)"
    )
    init.add_argument(
        "--share-lm-head",
        action="store_true",
        help="heads that use the model's LM head: small files, and format v2",
    )
    init.add_argument("--force", action="store_true", help="replace heads that DIR holds")
    init.set_defaults(run=f"{__name__}:run_init")
    check = actions.add_parser(
        "check", help="whether heads and base belong together",
        description="Compare each head's best guess on a short text with what can be guessed without heads.",
    )  # fmt: skip
    add_settings(check, LoadConfig)
    check.add_argument("--text", default="", help="text to guess; default: what the base itself writes")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=f"{__name__}:run_check")


def run_init(args: argparse.Namespace) -> None:
    """Write heads that guess what the base says, in the dtype of its LM head.

    Raises MedusaError for numbers out of range, a base that cannot be read or a disk that is too small.
    """
    with importing():
        from medusa_core.checkpoints.convert import check_target, staged
        from medusa_core.checkpoints.heads import write_heads
        from medusa_core.checkpoints.layouts import HeadTensors
        from medusa_core.checkpoints.lm_head import read_lm_head
        from medusa_core.checkpoints.locate import embedded_model, locate_model
        from medusa_core.drafters.medusa.heads import fresh_tensors

    out = check_output_folder(os.path.expanduser(args.out), "--out")
    count, layers, share = args.num_heads, args.layers, args.share_lm_head
    # The limits of the training recipes.
    for flag, value, most in (("--num-heads", count, 16), ("--layers", layers, 8)):
        if not 1 <= value <= most:
            raise MedusaError(f"{flag} is {value}: give 1 to {most}")
    folder = locate_model(args.model) if args.model else embedded_model()
    check_target(out, folder, args.force, what="--out")
    lm_head = read_lm_head(folder)
    vocabulary, width = lm_head.shape
    size = count * (layers * (width + 1) + (0 if share else vocabulary)) * width * lm_head.element_size()
    weight, bias, last = fresh_tensors(lm_head, count, layers)
    with staged(out) as staging:
        if size > (free := shutil.disk_usage(staging).free):
            raise MedusaError(
                f"the heads take {bytes_words(size)}, the disk of {out} has {bytes_words(free)} left: "
                "use --share-lm-head or another disk"
            )
        tensors = HeadTensors(weight, bias, None if share else last)
        write_heads(tensors, staging, args.model or EMBEDDED)
    made = f"{counted(count, 'untrained head')} of {counted(layers, 'layer')}"
    print(f"{args.out}: {made}, {bytes_words(size)}")
    model = f"--model {shlex.quote(args.model)} " if args.model else ""
    print(
        f"train them: python -m medusa_core train medusa1 {model}--start {shlex.quote(args.out)} "
        f"--heads {count} --head-layers {layers}"
    )


def run_check(args: argparse.Namespace) -> None:
    """Load, compare, print. Raises MedusaError for what cannot be loaded or compared."""
    with importing():
        from medusa_core.cli.load import load_with_line
        from medusa_core.evaluation.head_check import GUESS, check_heads

    engine = load_with_line(read_settings(LoadConfig, args))
    report = check_heads(engine, args.text)
    if args.json:
        about = {"model": engine.info.name, "context": engine.info.context}
        about |= {"extended": engine.info.extended, "notes": list(engine.info.notes)}
        print(json.dumps(about | report.record()))
        return
    context = engine.info.extended or f"context {engine.info.context:,}"
    print(f"{engine.info.name} · {context} · {report.positions} positions")
    print(f"{report.one:<5} accuracy  without {'it' if report.one == GUESS else 'heads'}")
    for head in report.heads:
        print(
            f"{head.head:>4}  {head.accuracy:>8.1%}  {head.baseline:>13.1%}"
            + ("" if head.better else "  no better")
        )
    if report.ok:
        print(f"fine: {report.message}")
    else:
        print(f"warning: {report.message}", file=sys.stderr)
