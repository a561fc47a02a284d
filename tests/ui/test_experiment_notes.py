"""The notes of a stored experiment as the page says them."""

from __future__ import annotations

import html
import re

import pytest

from ui.tabs.experiments import _note

START = "Texts identical to plain decoding's, of 12: "


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("none 12, medusa 12", "12 with each of 2 methods"),
        ("medusa 12, lookup 11, none 12", "Prompt lookup 11, 12 with each of 2 methods"),
        ("tokenswift 12, tokenswift, penalty 12", "12 with each of 2 methods"),  # a name with a comma
        ("medusa 12, lookup 11", "Medusa heads 12, Prompt lookup 11"),  # one alone is named
    ],
)
def test_methods_whose_texts_are_all_identical_are_counted(listed, said):
    text = html.unescape(re.sub("<[^>]+>", "", _note(f"{START}{listed}.")))
    assert text == f"{START}{said}."
