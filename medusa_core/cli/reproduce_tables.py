"""``reproduce tables``: the tables between markers in README, docs and cards, written from the store."""

from __future__ import annotations

import argparse
from pathlib import Path

from medusa_core.experiments.tables import files_with_tables, rendered
from medusa_core.files import project_folder, read_text

ROOT = project_folder()


def run(args: argparse.Namespace) -> None:
    """Rewrite what differs and name it; with --check exit with 1 instead. Raises MedusaError."""
    differing: list[Path] = []
    for file in files_with_tables(ROOT):
        before = read_text(file)
        after = rendered(before)
        if after != before:
            differing.append(file)
            if not args.check:
                file.write_text(after, encoding="utf-8", newline="")
    for file in differing:
        print(f"{file.relative_to(ROOT)} {'differs' if args.check else 'written'}")
    if args.check and differing:
        raise SystemExit(1)
