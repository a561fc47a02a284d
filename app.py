"""Start the app: read the flags, decide what visitors may do, build the page, launch it. Nothing else."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, reason_of
from medusa_core.flags import add_settings, read_settings
from ui.http_guard import HttpGuard
from ui.layout import build_page, page_css
from ui.policy import Policy, Reach, announcement, policy_of
from ui.session import Session
from ui.theme import gradio_theme
from ui.zero_gpu import claim

EXIT_BAD_INPUT = 2
TREE_FILE, TRAINING_FILE = 500_000, 5_000_000  # bytes of the largest upload, without and with the Train tab
BESIDE_THE_FILE = 500_000  # bytes of a request that are not the file
# Open pages whose state is kept: each is 0.4 MB of gradio's records and up to 0.2 of a conversation. Finished
# runs have a budget of their own for all pages together (`ui/kept_runs.py`).
MOST_PAGES = 400


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's flags; `python app.py --help` explains them."""
    parser = argparse.ArgumentParser(
        description="Run Medusa decoding on this machine and see every step of it in the browser.",
        epilog="Without flags: the embedded model at http://127.0.0.1:7860, and no request to anywhere else.",
    )
    parser.add_argument("--share", action="store_true", help="open a public gradio link to this machine")
    parser.add_argument("--host", default=None, help="address to listen on; 0.0.0.0 opens it to the network")
    parser.add_argument("--port", type=int, default=None, help="port (default: the first free one from 7860)")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="MODEL[+HEADS]",
        help="a model that visitors may choose where others can reach the page; may be given several times",
    )  # fmt: skip
    add_settings(parser, LoadConfig)
    return parser.parse_args(arguments)


def launch_options(page: gr.Blocks, policy: Policy, reach: Reach, port: int | None = None) -> dict[str, Any]:
    """How gradio is to serve the page: nothing of its own on top, and no more than it has to take."""
    file = TRAINING_FILE if policy.training else TREE_FILE
    guard = Middleware(HttpGuard, page=page, most_bytes=file + BESIDE_THE_FILE)
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
        "ssr_mode": False,
    }


def require_address(host: str) -> None:
    """Raises MedusaError for an address that is not this machine's: gradio would try a hundred ports."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        raise MedusaError(f"cannot listen on {host}, {reason_of(error)}: choose another --host") from error


def start(flags: argparse.Namespace) -> None:
    """Raises MedusaError for flags that make no sense, OSError for a port that is taken."""
    gpu = claim(os.environ)  # first of all: it has to be there before torch meets CUDA
    reach = Reach.of(os.environ, share=flags.share, host=flags.host)
    if reach.host is not None:
        require_address(reach.host)
    policy = policy_of(os.environ, share=flags.share, host=flags.host, offers=flags.allow)
    session = Session(read_settings(LoadConfig, flags), policy=policy, gpu=gpu)
    if gpu is not None:
        print(session.load_at_start())  # the Space keeps what is loaded by now for all runs
    if policy.public:
        print(announcement(policy), flush=True)
    page = build_page(session)
    page.launch(**launch_options(page, policy, reach, flags.port))


def main() -> None:
    """Bad input ends in one line and exit code 2."""
    try:
        start(parse_flags())
    except MedusaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error
    except OSError as error:
        print(f"error: {str(error).split('. ')[0]}: choose another --port", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from error


if __name__ == "__main__":
    main()
