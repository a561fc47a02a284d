"""Start the app: read the flags, decide what visitors may do, build the page, launch it. Nothing else."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from medusa_core.cli import EXIT_BAD_INPUT, OneLineParser
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, one_line, reason_of
from medusa_core.flags import add_settings, read_settings
from ui.environment import LARGEST_PORT, check_environment
from ui.policy import Policy, Reach, announcement, policy_of

if TYPE_CHECKING:
    import gradio as gr

# gradio is imported where it is used: a wrong environment variable ends its import with a traceback.

TREE_FILE, TRAINING_FILE = 500_000, 5_000_000  # bytes of the largest upload, without and with the Train tab
BESIDE_THE_FILE = 500_000  # bytes of a request that are not the file
MOST_PAGES = 400  # open pages whose state is kept: each is 0.3 MB, and up to 15 after the longest run


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


def launch_options(page: gr.Blocks, policy: Policy, reach: Reach, port: int | None = None) -> dict[str, Any]:
    """How gradio is to serve the page: nothing of its own on top, and no more than it has to take."""
    from starlette.middleware import Middleware  # noqa: PLC0415

    from ui.http_guard import HttpGuard  # noqa: PLC0415
    from ui.layout import page_css  # noqa: PLC0415
    from ui.routes import Names  # noqa: PLC0415
    from ui.theme import gradio_theme  # noqa: PLC0415

    file = TRAINING_FILE if policy.training else TREE_FILE
    guard = Middleware(
        HttpGuard,
        page=page,
        most_bytes=file + BESIDE_THE_FILE,
        names=Names(private=not policy.public, host=reach.host),
        proxied=reach.proxied,
    )
    return {
        "theme": gradio_theme(),
        "css": page_css(),
        "share": reach.share,
        "server_name": reach.host,
        "server_port": port,
        "app_kwargs": {"middleware": [guard]},
        "max_file_size": file,
        "state_session_capacity": MOST_PAGES,
        "footer_links": [],
        "run_history": False,
        "show_error": False,
        "enable_monitoring": False,
        "mcp_server": False,
        "num_workers": 0,  # further servers of gradio's would answer beside the guard
        "ssr_mode": False,
    }


def require_address(host: str) -> None:
    """Raises MedusaError for an address that is not this machine's: gradio would try a hundred ports."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except (OSError, ValueError) as error:  # ValueError: a label of 64 letters, a null character
        name = host if len(host) <= 60 else f"{host[:60]}…"
        raise MedusaError(f"cannot listen on {name}, {reason_of(error)}: choose another --host") from error


def start(flags: argparse.Namespace) -> None:
    """Raises MedusaError for flags that make no sense, OSError for a port that is taken."""
    check_environment(os.environ)
    from ui.zero_gpu import claim  # noqa: PLC0415

    gpu = claim(os.environ)  # first of all: it has to be there before torch meets CUDA
    reach = Reach.of(os.environ, share=flags.share, host=flags.host)
    if reach.host is not None:
        require_address(reach.host)
    policy = policy_of(os.environ, share=flags.share, host=flags.host, offers=flags.allow)
    from ui.connections import limit_connections  # noqa: PLC0415
    from ui.layout import build_page  # noqa: PLC0415
    from ui.session import Session  # noqa: PLC0415

    session = Session(read_settings(LoadConfig, flags), policy=policy, gpu=gpu)
    if gpu is not None:
        print(session.load_at_start())  # the Space keeps what is loaded by now for all runs
    if policy.public:
        print(announcement(policy), flush=True)
    page = build_page(session)
    page.launch(**launch_options(page, policy, reach, flags.port), prevent_thread_lock=True)
    limit_connections(page.server, proxied=reach.proxied)
    page.block_thread()


def main() -> None:
    """Bad input ends in one line and exit code 2."""
    try:
        start(parse_flags())
    except MedusaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error
    except (OSError, OverflowError) as error:  # OverflowError: no port is free up to the largest one
        reason = one_line(str(error)).split(". ")[0]
        print(f"error: {reason}: choose another --port", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error


if __name__ == "__main__":
    main()
