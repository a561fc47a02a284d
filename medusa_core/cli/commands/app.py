"""``app``: open the page, as ``python app.py`` in a clone does."""

from __future__ import annotations

import argparse
import pkgutil
import sys

from medusa_core.cli.flags import add_settings
from medusa_core.config import LARGEST_PORT, LoadConfig
from medusa_core.files import project_folder

DESCRIPTION = "Run Medusa decoding on this machine and see every step of it in the browser."
EPILOG = "Without flags: the embedded model at http://127.0.0.1:7860, and no request to anywhere else."


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("app", help="open the page", description=DESCRIPTION, epilog=EPILOG)
    add_page_flags(parser)
    parser.set_defaults(run=f"{__name__}:run")


def add_page_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of the page: where it listens, what visitors may choose, the model it starts with."""
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
    parser.add_argument(
        "--without-model", action="store_true",
        help="serve the page also where its model cannot be loaded; recorded runs need none",
    )  # fmt: skip
    add_settings(parser, LoadConfig)


def port_number(text: str) -> int:
    """A value of --port. Raises argparse's error for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= LARGEST_PORT):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a port: choose one from 1 to {LARGEST_PORT}")
    return int(text)


def run(args: argparse.Namespace) -> None:
    """Serve the page until it is stopped. Raises MedusaError."""
    folder = str(project_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    pkgutil.resolve_name("app:open_page")(args)  # in app.py; named as text: the engine imports no page
