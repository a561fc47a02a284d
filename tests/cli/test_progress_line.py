"""An error of a training stands on a line of its own, below the bar it ended."""

from __future__ import annotations

import pytest
from bad_answers import training

from medusa_core.cli.commands.fit import Bars
from medusa_core.cli.commands.train import show_progress
from medusa_core.errors import MedusaError
from medusa_core.training.loop import Progress


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


def test_the_bars_of_a_fit_are_too(capsys):
    def fit():
        with Bars() as bars:
            for record in failing():
                bars.update(record)

    with pytest.raises(MedusaError):
        fit()
    assert capsys.readouterr().err.endswith("\n")


def test_an_error_before_the_first_step_needs_no_bar(capsys):
    def nothing():
        raise MedusaError("there is no text")
        yield

    with pytest.raises(MedusaError, match="there is no text"):
        show_progress(nothing())
    assert capsys.readouterr().err == ""
