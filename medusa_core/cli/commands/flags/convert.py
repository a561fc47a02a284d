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

FORMATS = {
    "v1": "the public code's: each head with an LM head of its own",
    "v2": "the public code's: heads that use the base's LM head",
    "vllm": "vLLM, up to 0.32",
    "tgi": "Text Generation Inference",
    "trtllm": "TensorRT-LLM, with the tree",
    "gguf": "llama.cpp: a base alone, in one file without vocabulary, that takes and gives token ids",
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
    parser.set_defaults(run="medusa_core.cli.commands.convert:run")
