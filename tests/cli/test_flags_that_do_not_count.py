"""Flags of a method or rule that the run does not use are told of; help says which flag belongs to which."""

from __future__ import annotations

import re

import pytest

from medusa_core.acceptance import rule_names
from medusa_core.drafters import drafter_names, merged_in_words
from medusa_core.options import lone_owners_of, option_names

MOST_LINES = 80

IDLE = [
    (["--method", "ngram", "--tree", "nosuch"], ["--tree counts for nothing with --method ngram"]),
    (["--draft-depth", "2"], ["--draft-depth counts for nothing with --method medusa"]),
    (["--epsilon", "0.2", "--delta", "0.2"], ["--epsilon counts for nothing with --acceptance match",
                                              "--delta counts for nothing with --acceptance match"]),
    (["--method", "none", "--draft-nodes", "3"], ["--draft-nodes counts for nothing with --method none"]),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "notes"), IDLE)
def test_a_flag_that_counts_for_nothing_is_told_of(command, engine_folder, flags, notes):
    where = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "4"]
    code, _, said = command(["generate", "fade", *where, *flags])
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("note:")] == [f"note: {n}" for n in notes]


@pytest.mark.parametrize(
    "flags", [[], ["--tree", "cartesian-2x2"], ["--method", "ngram", "--draft-top-k", "4"],
              ["--acceptance", "typical", "--epsilon", "0.2", "--root", "sample"]],
)  # fmt: skip
def test_a_flag_that_counts_needs_no_note(command, engine_folder, flags):
    where = ["--model", engine_folder, "--dtype", "float32", "--max-new-tokens", "4"]
    code, _, said = command(["generate", "fade", *where, *flags])
    assert code == 0
    assert "note:" not in said


def test_a_chat_says_it_as_well(command, engine_folder):
    code, _, said = command(
        ["chat", "--model", engine_folder, "--dtype", "float32", "--method", "none", "--tree", "default"],
        typed="/quit\n",
    )
    assert code == 0
    assert "note: --tree counts for nothing with --method none" in said


def test_help_fits_two_screens_with_the_flags_of_each_drafter_and_rule(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, said, _ = command(["generate", "--help"])
    assert code == 0
    lines = said.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    words = " ".join(said.split())
    assert f"{', '.join(drafter_names())}; two in one tree: {merged_in_words()} [auto]" in words
    assert all(f"{name}: " in words for name in rule_names())
    listed = said.partition("by --help-settings:\n")[2]
    of_owner = {words.split()[0]: words for words in re.split(r"\n(?=  \S)", listed)}
    for name in option_names():
        assert all(f"--{name.replace('_', '-')} " in of_owner[owner] for owner in lone_owners_of(name))


def test_the_settings_are_said_in_words_with_their_owners(command):
    code, said, _ = command(["generate", "--help-settings"])
    assert code == 0
    said = " ".join(said.split())
    for name in option_names():
        words = said.partition(f"--{name.replace('_', '-')} ")[2].partition(" --")[0]
        assert all(owner in words for owner in lone_owners_of(name))
