"""``calibrate``: how often each guess of each head is right, and how long a step takes by tree size.

Written as one JSON file, which ``tree search`` and the page read.
"""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_prompt_flags, add_settings
from medusa_core.config import TIMED_ROUNDS, TIMED_SIZES, LoadConfig


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
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
    parser.set_defaults(run="medusa_core.cli.commands.calibrate:run")
