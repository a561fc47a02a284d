"""``convert``: heads from one format into another, ready for the engine that reads them there.

SRC is a folder or hub name of heads in any format: v1, v2, vLLM's, a whole model with its heads, or this
project's own. Tensors and their dtype stay as they are. How the result is served there is printed at the
end. For gguf, SRC is a base and DST a file; llama.cpp has no heads.

What was tried here: v1, v2, native and vllm are read back bit for bit by this project; gguf in bf16 and f32
was loaded by llama-cpp-python, which wrote the same greedy text. The Medusa and EAGLE-3 classes of vLLM 0.32,
the last with Medusa, gave the same logits on a CPU. No server of vLLM, TGI or TensorRT-LLM was run: the files
of the latter two follow what their public sources read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.drafters import method, owner_of
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError, counted
from medusa_core.library_messages import importing
from medusa_core.words import bytes_words

GGUF = "gguf"
FORMATS = {
    "v1": "the public code's: each head with an LM head of its own",
    "v2": "the public code's: heads that use the base's LM head",
    "vllm": "vLLM, up to 0.32",
    "tgi": "Text Generation Inference",
    "trtllm": "TensorRT-LLM, with the tree",
    GGUF: "llama.cpp: a base alone, in one file without vocabulary, that takes and gives token ids",
    "native": "this project's: shards, tree, accuracies and adapter beside them",
}


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "convert", help="heads into another format, for another engine", description=__doc__
    )
    parser.add_argument(
        "source", metavar="SRC", help="folder or hub name[@revision] of heads; embedded: ours"
    )
    parser.add_argument("target", metavar="DST", help="folder to write; for gguf, a file")
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
    parser.add_argument(
        "--weights",
        choices=("bf16", "f16", "f32", "q8_0"),
        help="of gguf: what matrices are written in (default: bf16)",
    )
    parser.add_argument("--force", action="store_true", help="replace heads or the file that DST holds")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.set_defaults(run=f"{__name__}:run")


def run(args: argparse.Namespace) -> None:
    """Convert and say what was written. Raises MedusaError for what cannot be converted."""
    with importing():
        from medusa_core.checkpoints.convert import ConversionRequest, convert

    for flag, given, only in (
        ("weights", args.weights, GGUF), ("pt", args.pt, "v1"), ("tree", args.tree, "trtllm"),
    ):  # fmt: skip
        if given and args.to != only:
            raise MedusaError(f"--{flag} is for {only}, --to is {args.to}: leave it out")
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
        print(f"  {name}  {bytes_words(size)}")
    for note in work.notes:
        print(f"note: {note}", file=sys.stderr)
    if work.commands:
        print("\nto serve it (from that engine's documentation; no server was run here):")
        print("\n".join(f"  {command}" for command in work.commands))


def _write_gguf(args: argparse.Namespace, target: Path) -> None:
    from medusa_core.checkpoints.gguf_file import convert_to_gguf

    kind = args.weights or "bf16"
    convert_to_gguf(args.source, target, kind, force=args.force)
    size = target.stat().st_size
    if args.json:
        print(json.dumps({"file": str(target), "format": GGUF, "weights": kind, "bytes": size}))
    else:
        print(f"{target}: {args.source} in {kind}, {bytes_words(size)}")


def _refuse_other_drafters(source: str) -> None:
    """Raise MedusaError where ``source`` holds the weights of a drafter that has one public layout alone."""
    from medusa_core.checkpoints.sources import locate_heads

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
