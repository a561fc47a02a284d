"""Decode a prompt, or the prompts of a file. Defaults stand in [brackets]."""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_run_settings, add_settings
from medusa_core.config import LoadConfig

BATCH = 8
MARKS = {"color": ("\033[4;34m", "\033[0m"), "brackets": ("[", "]"), "none": ("", "")}


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "generate", help="decode a prompt", description=__doc__, usage="%(prog)s [PROMPT] [OPTION …]"
    )
    parser.add_argument("prompt", nargs="?", help='text to continue; "-" reads standard input')
    parser.add_argument("--prompt-ids", metavar="IDS", help="token ids instead of text: 1,2,3")
    parser.add_argument(
        "--prompts", metavar="FILE", help='several; lines of {"prompt": "…"} or {"turns": ["…"]}'
    )
    parser.add_argument("--batch", type=int, metavar="N", help=f"how many of --prompts at once [{BATCH}]")
    add_settings(parser, LoadConfig)
    add_run_settings(parser)
    parser.add_argument("--save", metavar="FOLDER", help="keep the run here as it grows; the command goes on")
    parser.add_argument("--trace", metavar="FILE", help="write the run as a trace file")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the trace's output object as the last line; of --prompts "
        'one a prompt, {"prompt", "output"} or {"prompt", "error"}',
    )
    add_marks_flag(parser)
    parser.set_defaults(run="medusa_core.cli.generate:run")


def add_marks_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--marks",
        choices=("auto", *MARKS),
        default="auto",
        metavar="NAME",
        help=f"{', '.join(MARKS)}; auto: color on a terminal",
    )
