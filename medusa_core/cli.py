"""The command line: one subcommand a file in ``commands/``; bad input ends in one line and exit code 2.

Knows the commands only by their modules.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from medusa_core import commands
from medusa_core.errors import MedusaError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """argparse whose errors are one line, as for every other bad input."""

    def error(self, message: str) -> NoReturn:
        """Print the cause and where to look, then exit with 2."""
        self.exit(EXIT_BAD_INPUT, f"error: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    parser = OneLineParser(prog="python -m medusa_core", description="Medusa decoding, step by step.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}").register(subparsers)
    args = parser.parse_args(argv)
    _quiet_libraries()
    try:
        args.run(args)
    except MedusaError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; keep Python from complaining while it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _quiet_libraries() -> None:
    """Our own progress bars and one-line errors, not those of the libraries beneath."""
    from transformers.utils import logging  # noqa: PLC0415 - slow to import, and --help does not need it

    logging.set_verbosity_error()
    # What libraries tell their own developers is nothing to the user.
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.disable_progress_bar()
