"""``app``: the page, whose code lies beside the engine in a clone and inside it where it is installed."""

from __future__ import annotations

import argparse
import pkgutil
import sys

from medusa_core.files import project_folder

PAGE = "app:open_page"  # of app.py; named as text, since the engine knows no page


def run(args: argparse.Namespace) -> None:
    """Serve the page until it is stopped. Raises MedusaError."""
    folder = str(project_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    pkgutil.resolve_name(PAGE)(args)
