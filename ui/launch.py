"""From flags to a running page: what visitors may do, the page, and how gradio is to serve it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.middleware import Middleware

from medusa_core.checkpoints.locate import Fetch
from medusa_core.checkpoints.sources import find_sources
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError, reason_of
from ui.runs.session import Session
from ui.serving.admission import limit_connections
from ui.serving.http_guard import HttpGuard
from ui.serving.page import Page
from ui.serving.policy import Exposure, Policy, announcement, policy_of
from ui.serving.routes import Names
from ui.serving.zero_gpu import claim
from ui.tabs.layout import build_page, gradio_theme, page_css, page_head

TREE_FILE, TRAINING_FILE = 500_000, 5_000_000  # bytes of the largest upload, without and with the Train tab
INSTALL_MCP = "pip install 'gradio[mcp]', or start without --mcp"
NOT_LOADED = "the model is not loaded"
BESIDE_THE_FILE = 500_000  # bytes of a request that are not the file
# Pages whose state is kept (`ui/serving/page.py`): up to 0.4 MB of gradio's records and 0.2 of a
# conversation each. All pages share one budget for finished runs (`ui/serving/kept.py`).
MOST_PAGES = 400


def launch_options(
    page: Page, policy: Policy, reach: Exposure, port: int | None = None, *, mcp: bool = False
) -> dict[str, Any]:
    """gradio's launch options: none of its extras, and limits on what it accepts."""
    file = TRAINING_FILE if policy.training else TREE_FILE
    guard = Middleware(
        HttpGuard,
        page=page,
        most_upload_bytes=file + BESIDE_THE_FILE,
        names=Names(private=not policy.public, host=reach.host),
        proxied=reach.proxied,
        mcp=mcp,
    )
    return {
        "theme": gradio_theme(),
        "css": page_css(),
        "head": page_head(),
        "share": reach.share,
        "server_name": reach.host,
        "server_port": port,
        "app_kwargs": {"middleware": [guard]},
        "max_file_size": file,
        "state_session_capacity": MOST_PAGES,
        "footer_links": ["api"],
        "run_history": False,
        "show_error": False,
        "enable_monitoring": False,
        "mcp_server": mcp,
        "num_workers": 0,  # more gradio servers would bypass the guard
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


def require_model(load: LoadConfig) -> None:
    """Raises MedusaError for a model or heads that do not exist, before the page announces an address."""
    if not (load.model or load.heads):
        return
    try:
        find_sources(load.model, load.heads, Fetch(weights=False, code=load.trust_remote_code))
    except MedusaError as error:
        raise _not_loaded(error) from error


def _not_loaded(error: MedusaError) -> MedusaError:
    return MedusaError(f"{NOT_LOADED}: {error}; --without-model serves the page anyway")


def start(flags: argparse.Namespace, load: LoadConfig) -> None:
    """Serve the page. Raises MedusaError for flags that make no sense, OSError for a port that is taken."""
    if flags.mcp and importlib.util.find_spec("mcp") is None:
        raise MedusaError(f"--mcp needs the package mcp, which is not installed: {INSTALL_MCP}")
    gpu = claim(os.environ)  # first of all, since it must precede torch's use of CUDA
    reach = Exposure.of(os.environ, share=flags.share, host=flags.host)
    if reach.host is not None:
        require_address(reach.host)
    policy = policy_of(os.environ, reach, flags.allow)
    if gpu is not None:
        load = replace(load, capture=False)  # each run's process would capture its steps anew
    if not flags.without_model:
        require_model(load)
    session = Session(load, policy=policy, gpu=gpu)
    if gpu is not None:
        print(session.load_at_start())  # the Space keeps what is loaded so far for all runs
    if policy.public:
        print(announcement(policy), flush=True)
    page = build_page(session)
    options = launch_options(page, policy, reach, flags.port, mcp=flags.mcp)
    page.launch(**options, prevent_thread_lock=True)
    if flags.mcp and page.mcp_error:  # gradio would go on without it
        raise MedusaError(f"the MCP server does not start: {page.mcp_error}; {INSTALL_MCP}")
    limit_connections(page.server, proxied=reach.proxied)
    serve(page, session, without_model=flags.without_model)


def serve(page: Page, session: Session, *, without_model: bool = False) -> None:
    """Keep the page up until it is stopped. Closes it and raises MedusaError if its model cannot be loaded.

    With ``without_model`` it stays up instead, since recorded runs need no model.
    """
    failed: list[MedusaError] = []

    def close(error: MedusaError) -> None:
        failed.append(error)
        page.close(verbose=False)

    load_behind_page(session, say_not_loaded if without_model else close)
    page.block_thread()
    if failed:
        raise _not_loaded(failed[0])


def say_not_loaded(error: MedusaError) -> None:
    """Print the error; the page shows it too, since each page asks for the load when opened."""
    print(f"error: {NOT_LOADED}: {error}", file=sys.stderr, flush=True)


def load_behind_page(
    session: Session, on_error: Callable[[MedusaError], None] = say_not_loaded
) -> threading.Thread:
    """Load the model in the background while the page is up, so that the first run need not wait for it."""

    def load() -> None:
        try:
            session.load_own()
        except MedusaError as error:
            on_error(error)

    thread = threading.Thread(target=load, name="first load", daemon=True)
    thread.start()
    return thread
