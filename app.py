"""Start the app: read the flags, then import the page, which takes seconds, and launch it. Nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from medusa_core.cli.commands.app import DESCRIPTION, EPILOG, add_page_flags
from medusa_core.cli.flags import read_settings
from medusa_core.cli.main import EXIT_BAD_INPUT, OneLineParser
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, missing_package, one_line
from ui.serving.environment import check_environment


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's flags; `python app.py --help` explains them."""
    parser = OneLineParser(prog="python app.py", description=DESCRIPTION, epilog=EPILOG)
    add_page_flags(parser)
    return parser.parse_args(arguments)


def open_page(flags: argparse.Namespace) -> None:
    """Serve the page until it is stopped. Raises MedusaError where flags or environment forbid it."""
    check_environment(os.environ)  # before gradio, which reads some of it when imported
    try:
        from ui.launch import start  # noqa: PLC0415 - takes seconds

        start(flags, read_settings(LoadConfig, flags))
    except (OSError, OverflowError) as error:  # OverflowError: no port up to the largest is free
        if isinstance(error, OSError) and error.filename is not None:
            raise MedusaError(
                f"{error.filename}: {error.strerror}: restore it from git or a new clone"
            ) from error
        raise MedusaError(f"{one_line(str(error)).split('. ')[0]}: choose another --port") from error
    except ModuleNotFoundError as error:
        raise missing_package(error) from error


def main() -> None:
    """Run; bad input ends in one line and exit code 2."""
    flags = parse_flags()
    try:
        open_page(flags)
    except MedusaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error


if __name__ == "__main__":
    main()
