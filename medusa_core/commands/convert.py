"""``convert``: heads from one format into another, ready for the engine that reads them there.

SRC is a folder or hub name of heads in any format: v1, v2, vLLM's, a whole model with its heads, or this
project's own. Tensors and their dtype stay as they are. How the result is served there is printed at the
end.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

FORMATS = {
    "v1": "the public code's: each head with an LM head of its own",
    "v2": "the public code's: heads that use the base's LM head",
    "vllm": "vLLM",
    "tgi": "Text Generation Inference",
    "trtllm": "TensorRT-LLM, with the tree",
    "native": "this project's: shards, tree, accuracies and adapter beside them",
}


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser(
        "convert", help="heads into another format, for another engine", description=__doc__
    )
    parser.add_argument(
        "source", metavar="SRC", help="folder or hub name[@revision] of heads; embedded: ours"
    )
    parser.add_argument("target", metavar="DST", help="folder to write")
    parser.add_argument(
        "--to",
        required=True,
        choices=FORMATS,
        help="; ".join(f"{name}: {what}" for name, what in FORMATS.items()),
    )
    parser.add_argument(
        "--model", default="", help="folder or hub name of the base; default: what the heads' config says"
    )
    parser.add_argument(
        "--merge-base", default="", metavar="DIR",
        help="write the base as these heads know it: with their adapter merged, without Medusa's tensors",
    )  # fmt: skip
    parser.add_argument(
        "--tree",
        default="",
        help="tree for trtllm: a name or FILE.json; default: the heads' own, else a published one",
    )
    parser.add_argument(
        "--pt",
        action="store_true",
        help="v1 as medusa_lm_head.pt, which is what the public code itself reads",
    )
    parser.add_argument("--force", action="store_true", help="replace heads that DST holds")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Convert and say what was written. Raises MedusaError for what cannot be converted."""
    from medusa_core.conversion import Request, convert  # noqa: PLC0415 - loads torch, and --help needs none
    from medusa_core.errors import MedusaError  # noqa: PLC0415

    if args.pt and args.to != "v1":
        raise MedusaError(f"--pt is for v1, --to is {args.to}: leave it out")
    if args.tree and args.to != "trtllm":
        raise MedusaError(f"--tree is for trtllm, --to is {args.to}: leave it out")
    target = Path(args.target).expanduser()
    work = convert(
        Request(args.source, target, args.to, args.model, args.merge_base, args.tree, args.pt, args.force)
    )
    files = {file.name: file.stat().st_size for file in sorted(target.iterdir()) if file.is_file()}
    tensors = work.tensors
    kind = str(tensors.block_weight.dtype).removeprefix("torch.")
    if args.json:
        record = {
            "folder": str(target), "format": args.to, "base": work.base,
            "heads": tensors.count, "layers": tensors.layers, "dtype": kind,
            "files": files, "notes": work.notes, "commands": work.commands,
        }  # fmt: skip
        print(json.dumps(record))
        return
    print(
        f"{target}: {tensors.count} heads of {tensors.layers} layers in {kind} for {work.base}, as {args.to}"
    )
    for name, size in files.items():
        print(f"  {name}  {size / 1e6:.1f} MB" if size >= 1e5 else f"  {name}")
    for note in work.notes:
        print(f"note: {note}", file=sys.stderr)
    if work.commands:
        print("\nto serve it (from that engine's documentation; not run here):")
        print("\n".join(f"  {command}" for command in work.commands))
