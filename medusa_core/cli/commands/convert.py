"""What ``convert`` does. Its flags are in ``flags``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from medusa_core.checkpoints.convert import ConversionRequest, convert
from medusa_core.checkpoints.convert_base import GGUF, convert_to_gguf
from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters import method, owner_of
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.text.plural import counted


def run(args: argparse.Namespace) -> None:
    """Convert and say what was written. Raises MedusaError for what cannot be converted."""
    if args.weights and args.to != GGUF:
        raise MedusaError(f"--weights is for {GGUF}, --to is {args.to}: leave it out")
    if args.pt and args.to != "v1":
        raise MedusaError(f"--pt is for v1, --to is {args.to}: leave it out")
    if args.tree and args.to != "trtllm":
        raise MedusaError(f"--tree is for trtllm, --to is {args.to}: leave it out")
    target = Path(args.target).expanduser()
    if args.to == GGUF:
        _write_gguf(args, target)
        return
    _refuse_other_drafters(args.source)
    work = convert(
        ConversionRequest(
            args.source, target, args.to, args.model, args.merge_base, args.tree, args.pt, args.force
        )
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
        f"{target}: {counted(tensors.count, 'head')} of {counted(tensors.layers, 'layer')} in {kind} "
        f"for {work.base}, as {args.to}"
    )
    for name, size in files.items():
        print(f"  {name}  {size / 1e6:.1f} MB" if size >= 1e5 else f"  {name}")
    for note in work.notes:
        print(f"note: {note}", file=sys.stderr)
    if work.commands:
        print("\nto serve it (from that engine's documentation; no server was run here):")
        print("\n".join(f"  {command}" for command in work.commands))


def _write_gguf(args: argparse.Namespace, target: Path) -> None:
    kind = args.weights or "bf16"
    convert_to_gguf(args.source, target, kind, force=args.force)
    size = target.stat().st_size
    if args.json:
        print(json.dumps({"file": str(target), "format": GGUF, "weights": kind, "bytes": size}))
    else:
        print(f"{target}: {args.source} in {kind}, {size / 1e6:.1f} MB")


def _refuse_other_drafters(source: str) -> None:
    """Raise MedusaError where ``source`` holds the weights of a drafter that has one public layout alone."""
    if source == EMBEDDED:
        return
    folder = locate_heads(source)
    try:
        name = owner_of(folder)
    except MedusaError:
        return  # no drafter's files: the conversion says what is wrong with them
    if name == MEDUSA:
        return
    what = "a whole language model and no heads" if method(name).any_model else method(name).title
    raise MedusaError(
        f"{source} holds {what}: convert is for Medusa heads and their formats; of --method {name} "
        "there is one format, so name the folder with --heads as it is"
    )
