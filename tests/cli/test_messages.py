"""Errors on the terminal: their length, and the line that each has of its own."""

from __future__ import annotations

import itertools
import re
import sys

import pytest
from bad_answers import CPU, training
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.cli.progress import show_progress
from medusa_core.engine import Engine
from medusa_core.errors import LONGEST_LINE, MedusaError, one_line, reason_of, short_line
from medusa_core.training.loop import Progress

MOST = 300
HALF_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{0,1}|u[0-9a-f]{0,3})(?:$|[^0-9a-f])|\\(?:$| )")


def test_what_fits_is_left_alone():
    text = "x" * (LONGEST_LINE - 10) + " y"
    assert str(MedusaError(text)) == text


def test_a_long_name_is_shortened_before_anything_else():
    said = str(MedusaError(f"cannot read /start/{'deep/' * 200}end.json, line 3: fetch or save it again"))
    assert said.startswith("cannot read /start/deep/")
    assert said.endswith("deep/end.json, line 3: fetch or save it again")
    assert len(said) == LONGEST_LINE


def test_a_long_text_loses_its_middle_and_keeps_cause_and_fix():
    said = str(MedusaError(f"no tree is called {'a b ' * 500!r}: use one of mc_sim_7b_63 or a .json file"))
    assert said.startswith("no tree is called 'a b a b")
    assert said.endswith(": use one of mc_sim_7b_63 or a .json file")
    assert LONGEST_LINE - 4 <= len(said) <= LONGEST_LINE


@given(st.text(alphabet="ab \x1b\x9b\udcff\n\x07", min_size=200, max_size=400))
def test_no_escape_is_cut_in_two(text):
    said = short_line(text)
    assert len(said) <= LONGEST_LINE
    assert not HALF_ESCAPE.search(said), said
    assert said == one_line(said) == short_line(said)


def test_messages_inside_messages_stay_short():
    error = MedusaError("the config names " + "layer, " * 100 + "which is too many: fetch it again")
    for _ in range(5):
        error = MedusaError(f"cannot load the model: {error}")
    assert str(error).startswith("cannot load the model: ")
    assert str(error).endswith("which is too many: fetch it again")
    assert len(str(error)) <= LONGEST_LINE


def test_the_reason_of_a_library_is_short_at_both_ends():
    reason = reason_of(ValueError("first " + "x " * 500 + "last"))
    assert (reason[:6], reason[-4:]) == ("first ", "last")
    assert len(reason) <= 120


LONG = "long name " * 100
COMMANDS = {
    "a tree": ["tree", "show", LONG],
    "a file": ["tree", "search", "--accuracies", "/nowhere/" + "x/" * 400],
    "an unknown flag": ["tree", "show", "mc_sim_7b_63", "--" + "odd" * 300],
    "a choice": ["generate", "abc", "--dtype", LONG],
    "a model": ["generate", "abc", "--model", LONG, *CPU],
    "heads": ["heads", "init", "--model", "./" + "x" * 4000],
    "ids": ["generate", "--prompt-ids", LONG, *CPU],
    "methods": ["bench", "--methods", LONG],
    "escapes": ["tree", "show", "\x1b[31m" * 200],
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_says_it_within_300_characters(name, command):
    code, out, err = command(COMMANDS[name])
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert len(err.rstrip("\n")) <= MOST
    assert not HALF_ESCAPE.search(err)


# --- An error that comes after a part of the text has a line of its own.


def test_the_text_so_far_ends_its_line_before_the_error(command, engine_folder, monkeypatch):
    stream = Engine.stream

    def broken(self, *arguments, **options):
        for step in stream(self, *arguments, **options):
            if step.index == 2:
                raise MedusaError("the memory is used up")
            yield step

    monkeypatch.setattr(Engine, "stream", broken)
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # as on a terminal
    flags = ["--model", engine_folder, "--dtype", "float32", "--marks", "none"]
    code, out, _ = command(["generate", "abc", *flags])
    assert code == 2
    assert out.splitlines()[-1] == "error: the memory is used up"


# --- An error of a training stands on a line of its own, below the bar it ended.


def test_an_error_has_its_own_line(command, shop):
    rate = ("--learning-rate", "1e30", "--tokens", 128 * 60, "--precision", "float32")
    code, out, err = command(training(shop, "--model", shop.engine, *rate))
    assert (code, out) == (2, "")
    *before, last = err.rstrip("\n").split("\n")
    assert last.startswith("error: ")
    assert "\r" not in last
    assert any("heads:" in line for line in before)  # the bar was there


def failing():
    yield Progress("heads", 1, 10, 100, 50.0)
    raise MedusaError("the run has diverged")


def test_the_bar_is_ended_before_the_error_leaves(capsys):
    with pytest.raises(MedusaError):
        show_progress(failing())
    assert capsys.readouterr().err.endswith("\n")


def test_the_bar_moves_while_a_batch_of_answers_is_written(capsys, monkeypatch):
    now = itertools.count(step=10.0)
    monkeypatch.setattr("tqdm.std.time", lambda: next(now))
    show_progress(Progress("answers", step, 4, tokens, 50.0) for step, tokens in (
        (0, 100), (1, 2000), (1, 2100), (1, 2200), (1, 2300)
    ))  # fmt: skip
    shown = re.findall(r"tokens=([\d,]*\d)", capsys.readouterr().err)
    assert {"2,000", "2,100", "2,200"} <= set(shown)


def test_an_error_before_the_first_step_needs_no_bar(capsys):
    def nothing():
        raise MedusaError("there is no text")
        yield

    with pytest.raises(MedusaError, match="there is no text"):
        show_progress(nothing())
    assert capsys.readouterr().err == ""
