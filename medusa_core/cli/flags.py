"""Settings dataclasses to command-line flags and back."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
import textwrap
from collections.abc import Iterable
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medusa_core.acceptance import rules_in_words
from medusa_core.config import AUTO_METHOD, WITHOUT_WEIGHTS, GenerationConfig, check_settings
from medusa_core.drafters import drafter_names, merged_in_words
from medusa_core.drafters._options import (
    check_choices,
    check_options,
    differing_defaults,
    option_kinds,
    option_names,
)
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import special_kind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
MOST_TEXTS = 1024  # texts of the largest batch
COLUMNS = 80  # columns of a terminal, for text that is laid out by hand
_METAVARS = {int: "N", float: "X"}


def add_settings(parser: argparse.ArgumentParser, config: type) -> None:
    for item in fields(config):
        _add_flag(parser, item, help=item.metadata["help"])


def read_settings(config: type[T], args: argparse.Namespace, **changes: Any) -> T:
    """Build a settings record from parsed flags. Raises MedusaError when one is out of range."""
    values = {f.name: getattr(args, f.name) for f in fields(config) if hasattr(args, f.name)}
    record = config(**values | changes)
    check_settings(record)
    return record


def add_run_settings(parser: argparse.ArgumentParser, leave_out: Iterable[str] = ()) -> None:
    """Add the flags of a run: its settings and those of every drafter and acceptance rule.

    The latter are in the parsed arguments only if they were given, so that a flag that counts for nothing in
    the run can be reported.
    """
    left = {*leave_out, "options"}
    words = {
        "acceptance": "; ".join(rules_in_words()),
        "method": f"who drafts: {AUTO_METHOD} (whose weights are there, else {WITHOUT_WEIGHTS}), "
        f"{', '.join(drafter_names())}; two in one tree: {merged_in_words()}",
    }
    for item in fields(GenerationConfig):
        if item.name not in left:
            own = AUTO_METHOD if item.name == "method" else None
            _add_flag(parser, item, help=words.get(item.name, item.metadata["help"]), default=own)
    _add_option_flags(parser, shown=False)
    parser.add_argument_group(
        "drafters' and rules' settings, in words by --help-settings", _options_by_owner()
    )
    parser.add_argument(
        "--help-settings",
        action=_PrintSettings,
        nargs=0,
        help="say what each setting of a drafter or a rule does",
    )


def _add_option_flags(parser: argparse.ArgumentParser, *, shown: bool) -> None:
    """Add the flags of drafters and rules, each once; ``shown``: whether help lists them."""
    same: dict[str, dict[str, Field]] = {}  # by name of the setting and by owner
    for owner, kind in option_kinds().items():
        for item in fields(kind):
            same.setdefault(item.name, {})[owner] = item
    differing = differing_defaults()
    for name, items in same.items():
        differ = name in differing
        whose = ", ".join(f"{owner} [{item.default}]" if differ else owner for owner, item in items.items())
        helps = dict.fromkeys(item.metadata["help"] for item in items.values())
        words = f"{whose}: {'; '.join(helps)}" if shown else argparse.SUPPRESS
        first = next(iter(items.values()))
        _add_flag(parser, first, help=words, shown=shown and not differ, only_if_given=True)


def _options_by_owner() -> str:
    """The flags and defaults of each drafter and rule that has some, a paragraph each."""
    kinds = option_kinds()
    wide = max(map(len, kinds))
    return "\n".join(
        textwrap.fill(
            " ".join(f"{flag_of(item.name)} {item.default}" for item in fields(kind)),
            width=COLUMNS, break_on_hyphens=False,
            initial_indent=f"  {name:<{wide}}  ", subsequent_indent=" " * (wide + 4),
        )
        for name, kind in kinds.items() if fields(kind)
    )  # fmt: skip


class _PrintSettings(argparse.Action):
    """Prints what the settings of drafters and rules do, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        about = type(parser)(prog=parser.prog, usage=argparse.SUPPRESS, add_help=False)
        _add_option_flags(about, shown=True)
        about.print_help()
        parser.exit()


def read_run_settings(args: argparse.Namespace) -> GenerationConfig:
    """A run's settings from parsed flags. Raises MedusaError when one is out of range."""
    options = {name: getattr(args, name) for name in option_names() if hasattr(args, name)}
    config = read_settings(GenerationConfig, args, stop=tuple(args.stop or ()), options=options)
    check_choices(config)
    check_options(config)
    return config


def add_prompt_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts", action="append", metavar="FILE.jsonl", help="repeatable (default: the shipped prompts)"
    )
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="prompts left out at the start of a file"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts taken from each file (default: all)")


def check_output_file(name: str, flag: str, *, folder_is_made: bool = False) -> Path:
    """The file of that name. Raises MedusaError when it cannot be written, before any work is done."""
    file = Path(_given(name, flag, "file"))
    try:
        if file.is_dir():
            raise MedusaError(f"{flag} {file} is a folder: name a file in it")
        if kind := special_kind(file):
            raise MedusaError(f"{flag} {file} is {kind} and no file: name a file")
        if folder_is_made and not file.parent.is_dir():
            check_output_folder(str(file.parent), flag)
        elif not file.parent.is_dir():
            raise MedusaError(
                f"{flag} {file}: there is no folder {file.parent}, make it first or name another"
            )
        elif not file.exists():
            file.touch()  # the only way to know: permissions say little about odd file systems
            file.unlink()
        elif not os.access(file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise MedusaError(
            f"{flag} {file} cannot be written ({reason_of(error)}): name another file"
        ) from error
    return file


def check_output_folder(name: str, flag: str) -> Path:
    """The folder of that name. Raises MedusaError when it cannot be made or written into."""
    folder = Path(_given(name, flag, "folder"))
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise MedusaError(f"{flag} {folder} cannot be made, since {there} is a file: name a folder")
        with tempfile.TemporaryFile(dir=there):
            return folder
    except OSError as error:
        raise MedusaError(
            f"{flag} {folder} cannot be written to ({reason_of(error)}): name another folder"
        ) from error


def _given(name: str, flag: str, what: str) -> str:
    """The name. Raises MedusaError for an empty one, which a path would take for the working folder."""
    if not name.strip() or "\0" in name:
        raise MedusaError(f"{flag} is {name!r}: name a {what}")
    return name


def _add_flag(
    parser: argparse.ArgumentParser,
    item: Field,
    *,
    help: str,
    default: Any = None,
    shown: bool = True,
    only_if_given: bool = False,
) -> None:
    """Add the flag of a setting; ``default`` replaces the record's own; ``shown``: whether help says it."""
    meta = item.metadata
    flag = flag_of(item.name)
    if default is None:
        default = item.default
    if isinstance(default, bool):
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=help)
        return
    if isinstance(default, tuple):
        parser.add_argument(flag, action="append", default=None, metavar="TEXT", help=help)
        return
    choices = meta.get("choices")
    named = f"{', '.join(choices)}; " if choices else ""
    said = f" [{default}]" if shown and default != "" else ""
    parser.add_argument(
        flag,
        type=type(default),
        default=argparse.SUPPRESS if only_if_given else default,
        choices=choices,
        metavar=_METAVARS.get(type(default), "NAME"),
        help=help if help == argparse.SUPPRESS else (named + help + said).replace("%", "%%"),
    )


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")
