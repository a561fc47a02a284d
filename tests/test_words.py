"""Amounts have three digits and decimal units; what is below a thousand is whole."""

from __future__ import annotations

import pytest

from medusa_core.words import bytes_words, count_words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"), (12, "12 B"), (999, "999 B"), (1000, "1.00 kB"), (9_995, "10.0 kB"), (999_499, "999 kB"),
        (999_500, "1.00 MB"), (33_554_432, "33.6 MB"), (2**30, "1.07 GB"), (15 * 10**11, "1.50 TB"),
    ],
)  # fmt: skip
def test_bytes_in_words(count, words):
    assert bytes_words(count) == words


def test_counts_in_words():
    assert (count_words(640), count_words(6_738_415_616)) == ("640", "6.74 B")
