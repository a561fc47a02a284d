"""Start the app: read the flags, build the page, launch it. Nothing else."""

from __future__ import annotations

import argparse
from dataclasses import fields

from medusa_core.config import LoadConfig
from ui.layout import build_page, page_css
from ui.session import Session
from ui.theme import gradio_theme


def parse_flags() -> argparse.Namespace:
    """The command line's flags; `python app.py --help` explains them."""
    parser = argparse.ArgumentParser(
        description="Run Medusa decoding on this machine and see every step of it in the browser.",
        epilog="Without flags: the embedded model at http://127.0.0.1:7860, and no request to anywhere else.",
    )
    parser.add_argument("--share", action="store_true", help="open a public gradio link to this machine")
    parser.add_argument("--host", default=None, help="address to listen on; 0.0.0.0 opens it to the network")
    parser.add_argument("--port", type=int, default=None, help="port (default: the first free one from 7860)")
    for setting in fields(LoadConfig):
        parser.add_argument(
            f"--{setting.name}",
            default=setting.default,
            choices=setting.metadata["choices"],
            help=setting.metadata["help"] + (f"; default: {setting.default}" if setting.default else ""),
        )
    return parser.parse_args()


def main() -> None:
    flags = parse_flags()
    session = Session(LoadConfig(flags.model, flags.heads, flags.dtype, flags.device))
    try:
        build_page(session).launch(
            theme=gradio_theme(),
            css=page_css(),
            share=flags.share,
            server_name=flags.host,
            server_port=flags.port,
            footer_links=[],
            run_history=False,
            max_file_size="5mb",
            ssr_mode=False,
        )
    except OSError as error:
        raise SystemExit(f"error: {str(error).split('. ')[0]}: choose another --port or --host") from error


if __name__ == "__main__":
    main()
