"""``chat``: talk with a model; replies stream with accepted drafts marked, figures follow each.

Commands: /reset forgets the conversation, /system TEXT sets the system prompt, /stats sums it up, /quit ends.
Lines come from the keyboard or from a pipe; Ctrl-C breaks a reply off.
"""

from __future__ import annotations

import argparse

from medusa_core.cli.commands.flags.generate import add_marks_flag
from medusa_core.cli.flags import add_run_settings, add_settings
from medusa_core.config import LoadConfig


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command's flags."""
    parser = subparsers.add_parser(
        "chat", help="talk with a model", description=__doc__, usage="%(prog)s [OPTION …]"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt")
    add_settings(parser, LoadConfig)
    add_run_settings(parser)
    add_marks_flag(parser)
    parser.set_defaults(run="medusa_core.cli.commands.chat:run")
