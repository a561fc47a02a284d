"""Every flag of every command with the value "--", which argparse may take for the end of the flags."""

from __future__ import annotations

import argparse

import pytest

from medusa_core.cli.main import build_parser


def leaves(parser, path=()):
    """The parsers that have a command's flags, with the words that lead there."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from leaves(child, (*path, name))


def test_two_dashes_are_a_value_or_are_refused_in_one_line(capsys):
    parser, tried = build_parser(), 0
    for path, leaf in leaves(parser):
        for action in leaf._actions:
            needed = [other for other in leaf._actions if other.required]
            for group in leaf._mutually_exclusive_groups:
                if group.required and action not in group._group_actions:
                    needed.append(group._group_actions[0])
            required = [part for other in needed for part in given(other)]
            for flag in action.option_strings:
                tried += 1
                try:
                    found = getattr(parser.parse_args([*path, *required, f"{flag}=--"]), action.dest)
                except SystemExit:
                    error = capsys.readouterr().err
                    assert error.count("\n") == 1, (path, flag)
                    assert "error: argument" in error, (path, flag)
                else:
                    assert found in ("--", ["--"]), (path, flag)
    assert tried > 500


def given(action):
    """A positional argument or a flag with a value that fits."""
    value = next(iter(action.choices)) if action.choices else "1"
    if action.nargs == 0:
        return [action.option_strings[0]]
    return [action.option_strings[0], value] if action.option_strings else [value]


@pytest.mark.parametrize("flag", ["--stop", "--model", "--max-new-tokens"])
def test_a_run_with_two_dashes_ends_without_a_traceback(command, engine_folder, flag):
    code, _, err = command(["generate", "abc", "--model", engine_folder, "--max-new-tokens", 4, f"{flag}=--"])
    assert code == (0 if flag == "--stop" else 2), err
