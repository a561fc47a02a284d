"""Numbers that no training can have, in the flags of ``train`` and ``fit``: one line, nothing is begun."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest

from medusa_core.errors import MedusaError
from medusa_core.training import data
from medusa_core.training.encoding import TokenArrays
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.recipes import RECIPES

CONFIGS = [*RECIPES.values(), FitConfig]
HUGE = [1e308, float("inf"), float("nan"), -1e308]
WHOLE = [10**400, -(10**400)]


@pytest.mark.parametrize("config", CONFIGS)
def test_no_setting_takes_an_absurd_number(config):
    numbers = [item for item in fields(config) if type(item.default) in (int, float)]
    assert len(numbers) > 5
    for item in numbers:
        for value in WHOLE if type(item.default) is int else HUGE:
            with pytest.raises(
                MedusaError, match=rf"^{item.name} is .*: (raise it|lower it|give a number.*)$"
            ):
                config(**{item.name: value})


FLAGS = {
    "minutes beyond a life": (["fit", "--minutes", "1e308"], "minutes is 1e[+]308, the largest is 100000"),
    "minutes without end": (["fit", "--minutes", "1e400"], "minutes is inf, the largest is 100000"),
    "minutes of NaN": (["fit", "--minutes", "nan"], "minutes is nan: give a number from 0.1"),
    "steps of NaN": (["train", "medusa1", "--learning-rate", "nan"], "learning_rate is nan"),
    "a rate without end": (["train", "medusa2", "--head-weight", "inf"], "head_weight is inf"),
    "text instead of tokens": (["train", "medusa1", "--tokens", "many"], "--tokens: invalid int value"),
    "tokens of 400 digits": (["train", "medusa1", "--tokens", "9" * 400], "tokens is 9+"),
    "a seed of 400 digits": (["train", "direct", "--seed", "9" * 400], "seed is 9+"),
    "answers of 400 digits": (["train", "self-distill", "--answers", "9" * 400], "answers is 9+"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAGS)
def test_absurd_flags_end_in_one_line(command, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    argv, cause = FLAGS[name]
    code, out, err = command(argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(f"^error: .*{cause}", err), err
    assert not list(tmp_path.iterdir())


def test_answers_longer_than_the_context_are_refused(shop, command):
    code, out, err = command(
        ["train", "self-distill", "--model", shop.engine, "--out", shop.out / "run", "--answers", 2,
         "--answer-tokens", 96, "--train", "nothing", "--prompts", shop.engine / "text.jsonl"]
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert (
        "answers of 96 tokens leave no room for a prompt, the model's context holds 96"
        in err.splitlines()[-1]
    )


@pytest.mark.slow
def test_the_order_of_very_many_windows_repeats(monkeypatch):
    """Laid out whole, that of 10^12 tokens would take gigabytes and minutes."""
    monkeypatch.setattr(data, "MOST_WINDOWS", 10)
    tokens = np.arange(64, dtype=np.uint16)
    mixture = data.PackedMixture([TokenArrays(tokens, np.ones(64, dtype=bool))], [1.0], 4, 10**11, 0, 0)
    first, again = (mixture.batch(number, 10).tokens for number in (0, 10**9))
    assert first.shape == (10, 5)
    assert bool((first == again).all())
