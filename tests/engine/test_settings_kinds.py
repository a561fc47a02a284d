"""A setting of the wrong kind or out of range is refused by name; NaN is not called too small."""

from __future__ import annotations

import math

import pytest

from medusa_core import generate
from medusa_core.errors import MedusaError

WRONG = [
    ({"max_new_tokens": "a"}, r"max_new_tokens is 'a' \(str\): give a whole number"),
    ({"max_new_tokens": 2.5}, r"max_new_tokens is 2.5 \(float\): give a whole number"),
    ({"max_new_tokens": True}, r"max_new_tokens is True \(bool\): give a whole number"),
    ({"temperature": "hot"}, r"temperature is 'hot' \(str\): give a number"),
    ({"epsilon": None}, r"epsilon is None \(NoneType\): give a number"),
    ({"temperature": math.nan}, r"temperature is nan: give a number from 0.0 to 2.0"),
    ({"temperature": math.inf}, r"temperature is inf, the largest is 2.0"),
    ({"temperature": -0.1}, r"temperature is -0.1, the smallest is 0.0"),
    ({"temperature": 9}, r"temperature is 9, the largest is 2"),
    ({"seed": -4}, r"seed is -4, the smallest is 0"),
    ({"penalty": 0.9}, "penalty is 0.9"),
    ({"penalty": math.nan}, "penalty is nan"),
    ({"penalty_window": -1}, "penalty_window is -1"),
    ({"min_p": 1.1}, "min_p is 1.1"),
    ({"top_k": -1}, "top_k is -1"),
    ({"top_k": 2.5}, "top_k is 2.5"),
    ({"top_p": 0.0}, "top_p is 0.0"),
    ({"top_p": 1.1}, "top_p is 1.1"),
    ({"acceptance": "hope"}, "no acceptance rule 'hope'"),
    ({"epsilom": 0.1}, r"no setting is called 'epsilom': did you mean epsilon\?$"),
    ({"ignore_eos": "no"}, r"ignore_eos is 'no' \(str\): give True or False"),
    ({"stop": 5}, r"stop is 5 \(int\): give a text, or several as a tuple"),
    ({"options": None}, r"options is None \(NoneType\): give a dictionary of settings by name"),
    ({"stop": ("a", 5)}, r"an entry of stop is 5 \(int\): give a text"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_setting_of_the_wrong_kind_is_named_with_the_right_one(engine, settings, words):
    with pytest.raises(MedusaError, match=words):
        generate(engine, "fade", **settings)


def test_a_whole_number_is_a_number(engine):
    assert generate(engine, "fade", temperature=0, max_new_tokens=2, stop=["zz"]).steps


def test_nan_on_the_command_line_is_no_number(command, engine_folder):
    code, _, said = command(["generate", "fade", "--model", engine_folder, "--temperature", "nan"])
    assert code == 2
    assert said == "error: --temperature is nan: give a number from 0.0 to 2.0\n"
