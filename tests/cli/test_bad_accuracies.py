"""Accuracies are lists of JSON numbers: nothing else that Python could make a number of is one."""

from __future__ import annotations

import json

import pytest
from bad_answers import refused
from bad_texts import BadFlags

from medusa_core import MedusaError
from medusa_core.trees.search import parse_accuracies, read_accuracies

NONE = ("holds no list of numbers a head", "write it anew with calibrate")
RANGE = ("outside 0 to 1", "give shares, not percentages")
FILES = {
    "a number of 400 digits": (f"[[1{'0' * 400}]]", "a number of more than 300 digits", "give shares of 1"),
    "a number of 5000 digits": (
        f"[[{'9' * 5000}]]",
        "cannot read accuracies .* as JSON",
        "anew with calibrate",
    ),
    "a number of 300 digits": (f"[[1{'0' * 299}]]", *RANGE),
    "no number": ("[[NaN]]", *RANGE),
    "a dictionary": ('{"accuracies": {"0": [0.5]}}', *NONE),
    "a head that is digits": ('["111"]', *NONE),
    "text": ('[["0.5", "0.25"]]', *NONE),
    "Arabic-Indic digits": ('[["\u0661", "\u0660"]]', *NONE),
    "truth values": ("[[true, false]]", *NONE),
    "nothing": ("[[null]]", *NONE),
    "a number": ("3", *NONE),
}


def test_bad_accuracies_end_in_one_line(command, tmp_path, subtests):
    file = tmp_path / "accuracies.json"
    for name, (content, cause, fix) in FILES.items():
        with subtests.test(name=name):
            file.write_text(content, encoding="utf-8")
            row = BadFlags([], cause, fix)
            refused(command(["tree", "search", "--accuracies", file]), row)
            with pytest.raises(MedusaError):
                read_accuracies(file)


def test_whole_numbers_and_halves_are_shares():
    assert parse_accuracies(json.loads("[[1, 0.5, 0], [0.25]]")) == [[1.0, 0.5, 0.0], [0.25]]
    assert parse_accuracies({"accuracies": [[1]]}) == [[1.0]]
