"""Start the app: read the flags, then import the page, which takes seconds, and launch it. Nothing else."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from collections.abc import Sequence

from medusa_core.cli.flags import add_settings
from medusa_core.cli.main import EXIT_BAD_INPUT, OneLineParser
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, one_line
from ui.serving.environment import LARGEST_PORT, check_environment

START = "ui.launch:start"  # imported once flags and environment are checked


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's flags; `python app.py --help` explains them."""
    parser = OneLineParser(
        prog="python app.py",
        description="Run Medusa decoding on this machine and see every step of it in the browser.",
        epilog="Without flags: the embedded model at http://127.0.0.1:7860, and no request to anywhere else.",
    )
    parser.add_argument("--share", action="store_true", help="open a public gradio link to this machine")
    parser.add_argument("--host", default=None, help="address to listen on; 0.0.0.0 opens it to the network")
    parser.add_argument(
        "--port", type=port_number, default=None, help="port (default: the first free one from 7860)"
    )
    parser.add_argument(
        "--mcp", action="store_true", help="also serve decode, trace and compare as tools of an MCP server; "
        "needs the package gradio[mcp]",
    )  # fmt: skip
    parser.add_argument(
        "--allow", action="append", default=[], metavar="MODEL[+HEADS]",
        help="a model that visitors may choose where others can reach the page; may be given several times",
    )  # fmt: skip
    add_settings(parser, LoadConfig)
    return parser.parse_args(arguments)


def port_number(text: str) -> int:
    """A value of --port. Raises argparse's error for what is no port."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= LARGEST_PORT):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port: choose one from 1 to {LARGEST_PORT}")
    return int(text)


def main() -> None:
    """Bad input ends in one line and exit code 2."""
    flags = parse_flags()
    try:
        check_environment(os.environ)  # before gradio is imported, which reads some of it then
        pkgutil.resolve_name(START)(flags)
    except MedusaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error
    except (OSError, OverflowError) as error:  # OverflowError: no port is free up to the largest one
        print(f"error: {one_line(str(error)).split('. ')[0]}: choose another --port", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error


if __name__ == "__main__":
    main()
