"""``fit``: from a model to heads that speed it up, in one line: self-distil, train, calibrate, measure.

The time and memory it will take are printed first, from a short probe of this machine. The same command again
goes on where it was stopped.
"""

from __future__ import annotations

import argparse

from medusa_core.cli.flags import add_settings
from medusa_core.training.fit.settings import FitConfig


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser(
        "fit", help="fit heads to your own model: the whole recipe in one line", description=__doc__
    )
    add_settings(parser, FitConfig)
    parser.add_argument("--plan", action="store_true", help="print the estimate of time and memory, and stop")
    parser.set_defaults(run="medusa_core.cli.commands.fit:run")
