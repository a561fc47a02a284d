"""``bench``: our methods and transformers' own generate on the same prompts and weights."""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_prompt_flags, add_run_settings, add_settings
from medusa_core.config import LoadConfig
from medusa_core.drafters import methods_in_words


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "bench", help="compare methods on the same prompts", description=__doc__, usage="%(prog)s [OPTION …]"
    )
    add_prompt_flags(parser)
    names = methods_in_words()
    parser.add_argument(
        "--methods",
        help=f"comma-separated: {names}; and transformers' hf (generate), hf-lookup (prompt lookup), "
        "hf-static (static cache, compiled); where llama-cpp-python is installed, llama-cpp and llama-cpp-q8 "
        "(8 bits). all: every method whose weights are loaded, and all of these but hf-static "
        "(default: none,medusa,hf, in a sweep none,medusa)",
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds over all prompts (default: 3)")
    parser.add_argument(
        "--sweep",
        choices=("nodes", "context", "batch", "dtype"),
        help="measure a step as this changes, by our own methods",
    )
    parser.add_argument("--values", metavar="N,N", help="the values of --sweep nodes, context or batch")
    parser.add_argument(
        "--batch",
        metavar="N,N",
        help="several prompts at once, as --sweep batch: 1,2,4,8 shows the gain fall",
    )
    parser.add_argument(
        "--shape",
        choices=("7b", "13b", "33b"),
        help="a Llama of this size with random weights, for the time of a step alone",
    )
    parser.add_argument(
        "--acceptance-from",
        metavar="FILE",
        help="with --shape: simulate the tokens of a step by the accuracies that calibrate wrote",
    )
    add_settings(parser, LoadConfig)
    add_run_settings(parser, leave_out=("method",))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON as the last line")
    parser.set_defaults(run="medusa_core.cli.bench:run")
