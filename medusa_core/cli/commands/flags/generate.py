"""``generate``: decode a prompt, streamed with accepted drafts marked, or the prompts of a file."""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_run_settings, add_settings
from medusa_core.config import LoadConfig

BATCH = 8
MARKS = {"color": ("\033[4;34m", "\033[0m"), "brackets": ("[", "]"), "none": ("", "")}


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser("generate", help="decode a prompt", description=__doc__)
    parser.add_argument("prompt", nargs="?", help='text to continue; "-" reads standard input')
    parser.add_argument("--prompt-ids", help="token ids instead of text: 1,2,3")
    parser.add_argument(
        "--prompts",
        metavar="FILE.jsonl",
        help='prompts to decode several at once, one a line: {"prompt": "…"} or {"turns": ["…"]}',
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help=f"how many of --prompts are decoded at once (default: {BATCH})",
    )
    add_settings(parser, LoadConfig)
    add_run_settings(parser)
    parser.add_argument(
        "--save",
        metavar="FOLDER",
        help="write tokens and speed to this folder as they come; after any end the same command goes on",
    )
    parser.add_argument("--trace", help="write the run as a trace file")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the trace's output object as the last line; with --prompts a line for each prompt, "
        '{"prompt", "output"} or {"prompt", "error"}, and nothing else',
    )
    add_marks_flag(parser)
    parser.set_defaults(run="medusa_core.cli.commands.generate:run")


def add_marks_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says how accepted drafts are marked."""
    parser.add_argument(
        "--marks",
        choices=("auto", *MARKS),
        default="auto",
        help="how accepted drafts are marked; auto: color on a terminal, [brackets] elsewhere",
    )
