"""Settings dataclasses to command-line flags and back."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

from medusa_core.errors import MedusaError
from medusa_core.files import special_kind

T = TypeVar("T")


def add_settings(parser: argparse.ArgumentParser, config: type, leave_out: Iterable[str] = ()) -> None:
    """Add one flag a field of a settings dataclass."""
    for item in fields(config):
        if item.name not in set(leave_out):
            _add_flag(parser, item)


def read_settings(config: type[T], args: argparse.Namespace, **changes: Any) -> T:
    """Build a settings record from parsed flags. Raises MedusaError when one is out of range."""
    values = {f.name: getattr(args, f.name) for f in fields(config) if hasattr(args, f.name)}
    return config(**values | changes)


def add_prompt_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that name prompt files and choose a part of each."""
    parser.add_argument(
        "--prompts", action="append", metavar="FILE.jsonl", help="repeatable (default: the shipped prompts)"
    )
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="prompts left out at the start of a file"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts taken from each file (default: all)")


def check_output_file(file: Path, flag: str, *, folder_is_made: bool = False) -> None:
    """Raise MedusaError for a file that cannot be written, before the work whose result it is to hold."""
    if file.is_dir():
        raise MedusaError(f"{flag} {file} is a folder: name a file in it")
    if kind := special_kind(file):
        raise MedusaError(f"{flag} {file} is {kind} and no file: name a file")
    if folder_is_made:
        check_output_folder(file.parent, flag)
    elif not file.parent.is_dir():
        raise MedusaError(f"{flag} {file}: there is no folder {file.parent}, make it first or name another")


def check_output_folder(folder: Path, flag: str) -> None:
    """Raise MedusaError for a folder that cannot be made, since it or one above it is a file."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise MedusaError(f"{flag} {folder} cannot be made, since {there} is a file: name a folder")


def _add_flag(parser: argparse.ArgumentParser, item: Field) -> None:
    meta = item.metadata
    flag = "--" + item.name.replace("_", "-")
    default = item.default if item.default is not MISSING else None
    if isinstance(default, bool):
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=meta["help"])
        return
    if isinstance(default, tuple):
        parser.add_argument(flag, action="append", default=None, metavar="TEXT", help=meta["help"])
        return
    shown = f" (default: {default})" if default != "" else ""
    parser.add_argument(
        flag,
        type=type(default),
        default=default,
        choices=meta.get("choices"),
        metavar=None if meta.get("choices") else item.name.split("_")[-1].upper(),
        help=(meta["help"] + shown).replace("%", "%%"),
    )
