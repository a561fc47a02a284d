"""``heads init`` and ``heads check``: fresh heads for any model; whether heads and base belong together."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.flags import add_settings, check_output_folder, read_settings

_MOST = {"num_heads": 16, "layers": 8}  # what the training recipes take


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
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
    init.set_defaults(run=run_init)
    check = actions.add_parser(
        "check", help="whether heads and base belong together",
        description="Compare each head's best guess on a short text with what can be guessed without heads.",
    )  # fmt: skip
    add_settings(check, LoadConfig)
    check.add_argument("--text", default="", help="text to guess; default: what the base itself writes")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=run_check)


def run_init(args: argparse.Namespace) -> None:
    """Write fresh heads. Raises MedusaError for numbers or a base that cannot be used."""
    check_output_folder(os.path.expanduser(args.out), "--out")
    size = write_fresh_heads(
        args.model, Path(args.out).expanduser(), args.num_heads, args.layers, args.share_lm_head, args.force
    )
    print(f"{args.out}: {args.num_heads} untrained heads of {args.layers} layers, {size / 1e6:.1f} MB")
    model = f"--model {shlex.quote(args.model)} " if args.model else ""
    print(
        f"train them: python -m medusa_core train medusa1 {model}--start {shlex.quote(args.out)} "
        f"--heads {args.num_heads} --head-layers {args.layers}"
    )


def write_fresh_heads(model: str, out: Path, count: int, layers: int, share: bool, force: bool) -> int:
    """Write heads that guess what the base says, in the dtype of its LM head; return their size in bytes.

    Raises MedusaError for numbers out of range, a base that cannot be read or a disk that is too small.
    """
    import torch  # noqa: PLC0415 - slow to import, and --help does not need it

    from medusa_core import checkpoints  # noqa: PLC0415
    from medusa_core.conversion import check_target, staged  # noqa: PLC0415

    for name, value in (("num_heads", count), ("layers", layers)):
        if not 1 <= value <= _MOST[name]:
            raise MedusaError(f"--{name.replace('_', '-')} is {value}: give 1 to {_MOST[name]}")
    folder = checkpoints.locate_model(model) if model else checkpoints.embedded_model()
    check_target(out, folder, force)
    lm_head = checkpoints.read_lm_head(folder)
    vocabulary, width = lm_head.shape
    size = count * (layers * (width + 1) + (0 if share else vocabulary)) * width * lm_head.element_size()
    blocks = torch.zeros(count, layers, width, width, dtype=lm_head.dtype)
    last = None if share else lm_head.expand(count, -1, -1)
    tensors = checkpoints.HeadTensors(blocks, blocks[..., 0].clone(), last)
    with staged(out) as staging:
        if size > (free := shutil.disk_usage(staging).free):
            raise MedusaError(
                f"the heads take {size / 1e9:.1f} GB, the disk of {out} has {free / 1e9:.1f} GB left: "
                "use --share-lm-head or another disk"
            )
        checkpoints.write_heads(tensors, staging, model or checkpoints.EMBEDDED)
    return size


def run_check(args: argparse.Namespace) -> None:
    """Load, compare, print. Raises MedusaError for what cannot be loaded or compared."""
    from medusa_core.health import check_heads  # noqa: PLC0415
    from medusa_core.load_line import load_with_line  # noqa: PLC0415 - slow to import, and --help does not need it

    engine = load_with_line(read_settings(LoadConfig, args))
    report = check_heads(engine, args.text)
    if args.json:
        print(json.dumps({"model": engine.info.name, "notes": list(engine.info.notes)} | report.record()))
        return
    print(f"{engine.info.name} · {report.positions} positions")
    print("head  accuracy  without heads")
    for head in report.heads:
        print(
            f"{head.head:>4}  {head.accuracy:>8.1%}  {head.baseline:>13.1%}"
            + ("" if head.better else "  no better")
        )
    if report.ok:
        print(f"fine: {report.message}")
    else:
        print(f"warning: {report.message}", file=sys.stderr)
