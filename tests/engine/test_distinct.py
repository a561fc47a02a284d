"""Distinct-n, and that it tells a text in circles from one that goes on."""

from __future__ import annotations

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.config import GenerationConfig
from medusa_core.text.distinct import distinct_n


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4))
def test_it_is_the_share_of_n_grams_that_differ(tokens, n):
    grams = [tuple(tokens[place : place + n]) for place in range(len(tokens) - n + 1)]
    assert distinct_n([tokens], n) == (len(set(grams)) / len(grams) if grams else None)


def test_a_text_in_circles_has_few_and_the_penalty_makes_more(engine):
    shares = []
    for settings in ({}, {"penalty": 1.6, "penalty_window": 20}):
        config = GenerationConfig.of(max_new_tokens=80, method="ngram", **settings)
        summary = engine.summary(config)
        for step in engine.stream(tiny.PROMPT, config):
            summary.add(step)
        assert summary.distinct() == [
            pytest.approx(distinct_n([summary.token_ids], n), abs=1e-4) for n in range(1, 5)
        ]
        shares.append(summary.distinct())
    assert all(with_penalty > without for without, with_penalty in zip(*shares, strict=True))
