"""The command line; bad input ends in one line and exit code 2.

Each subcommand is a file in ``commands/``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import shutil
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from medusa_core.cli import commands
from medusa_core.cli.signals import Terminated, signals_stop
from medusa_core.errors import (
    MedusaError,
    SettingError,
    close_name,
    is_out_of_memory,
    missing_package,
    name_fix,
    reason_of,
    short_line,
)
from medusa_core.library_messages import importing

COMMAND = "medusa"  # command of the installed package (pyproject.toml)
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143  # 128 and the number of the signal, as shells count
_LESS = "use a smaller model, batch or context, or close what else is running"


class _ShortHelp(argparse.HelpFormatter):
    """Help that names negations only where they change something, with little room beside flags."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=23, width=shutil.get_terminal_size().columns)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap a docstring without its marks of code, unless it is a list whose lines begin with a space."""
        return text if text.startswith(" ") else super()._fill_text(text.replace("``", ""), width, indent)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            flag = action.option_strings[0]
            return flag.replace("--", "--[no-]", 1) if action.default else flag
        return super()._format_action_invocation(action)


class _PrintCompletion(argparse.Action):
    """Prints a shell's completion script, which shtab makes from the parser, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, shell: Any, __: Any = None) -> None:
        try:
            import shtab  # noqa: PLC0415 - optional
        except ModuleNotFoundError:
            parser.error("completion is made by the package shtab, which is not installed: pip install shtab")
        parser.prog = COMMAND  # a shell completes the installed command by its name
        print(shtab.complete(parser, shell))
        parser.exit()


class OneLineParser(argparse.ArgumentParser):
    """argparse whose errors are one line, as for every other bad input, and whose help is short."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": _ShortHelp} | options)

    def error(self, message: str) -> NoReturn:
        """Print the cause and where to look, then exit with 2."""
        unknown = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")[0]
        known = _flags_of(self)
        if unknown in known:
            message += f": {unknown} is a flag of another command"
        elif unknown and not unknown.startswith("-"):
            message += ": write a text of several words in quotes"
        elif close := close_name(unknown, known):
            message += f": did you mean {close}?"
        self.exit(EXIT_BAD_INPUT, f"error: {short_line(f'{message}; see {self.prog} --help')}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """argparse's own check of choices, whose error names the one that was meant."""
        if action.choices is not None and value not in action.choices:
            fix = name_fix(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r:.60}: {fix}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Keep the value of ``--flag=--``, which argparse before Python 3.13 drops as the end of flags."""
        if not action.option_strings or arg_strings != ["--"]:
            return super()._get_values(action, arg_strings)
        value = self._get_value(action, "--")
        self._check_value(action, value)
        return value


def _flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """The long flags of a parser and of its commands."""
    found: set[str] = set()
    for action in parser._actions:
        found |= {flag for flag in action.option_strings if flag.startswith("--")}
        if isinstance(action, argparse._SubParsersAction):
            found = found.union(*map(_flags_of, action.choices.values()))
    return found


def build_parser() -> argparse.ArgumentParser:
    """The flags of all commands; ``run`` of what is parsed names the function that does the work."""
    by_name = bool(sys.argv) and Path(sys.argv[0]).stem == COMMAND
    parser = OneLineParser(
        prog=COMMAND if by_name else "python -m medusa_core", description="Medusa decoding, step by step."
    )
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        metavar="SHELL",
        help=f'bash, zsh or tcsh: in bash, eval "$({COMMAND} --print-completion bash)" completes with Tab',
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}").register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    given = (sys.argv[1:] if argv is None else argv) or ["--help"]
    return exit_code_of(lambda: _run(build_parser().parse_args(given)))


def exit_code_of(run: Callable[[], None]) -> int:
    """Call ``run``; an error that the user can mend becomes one line on standard error and an exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell, as by >&-
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):
        # Bytes that are not UTF-8 become surrogates, as in arguments; prompts with such are refused.
        sys.stdin.reconfigure(errors="surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for what its encoding lacks, as on stderr
    try:
        with signals_stop():
            run()
            sys.stdout.flush()  # a full disk is met here, not when Python ends
    except MedusaError as error:
        return _refuse(str(error))
    except KeyboardInterrupt as stop:
        print("stopped", file=sys.stderr)
        return EXIT_TERMINATED if isinstance(stop, Terminated) else EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        return _refuse(str(missing_package(error)))
    except BrokenPipeError:
        _drop_output()  # the pipe's reader has gone
    except OSError as error:
        # The user must hear what the system refuses: a full disk, a folder that is a file, a permission.
        # Files are named where they are written; standard output has no name.
        if error.filename is None:
            _drop_output()
        name = error.filename or "standard output"
        return _refuse(f"{name} cannot be used ({reason_of(error)}): check the path and the room on its disk")
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return _refuse(f"the memory is used up ({reason_of(error)}): {_LESS}")
    return 0


def _drop_output() -> None:
    """Keep Python from complaining when it flushes standard output at its end."""
    with suppress(io.UnsupportedOperation):  # an output that is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(text: str) -> int:
    print("error:", short_line(text), file=sys.stderr)
    return EXIT_BAD_INPUT


def _run(args: argparse.Namespace) -> None:
    """Import the module that does the command's work, which may take seconds, and call it."""
    with importing():
        run = pkgutil.resolve_name(args.run)
    try:
        run(args)
    except SettingError as error:
        raise MedusaError(_with_flag(str(error), vars(args))) from error


def _with_flag(text: str, settings: Container[str]) -> str:
    """An error about a setting with its flag in the name's place, as "--top-p is 7, the largest is 1"."""
    name, said, rest = text.partition(" is ")
    return f"--{name.replace('_', '-')}{said}{rest}" if name in settings else text
