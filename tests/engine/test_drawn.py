"""One token a row by one random number: its distribution, tokens that cannot be, what is no distribution."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from medusa_core.acceptance.sampling import choose, drawn, require_drawn
from medusa_core.errors import MedusaError


def test_tokens_follow_their_probabilities():
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.1999, 0.0001, 0.0], [0.0, 1 / 3, 0.0, 1 / 3, 1 / 3, 0.0]])
    count = 100_000
    for row in probs:
        tokens = drawn(row.expand(count, -1), generator)
        found = torch.bincount(tokens, minlength=6)
        possible = row > 0
        assert not found[~possible].any()
        wanted = row.double()[possible] / row.double().sum() * count
        assert stats.chisquare(found[possible].numpy(), wanted.numpy()).pvalue > 1e-4


def test_rows_are_drawn_apart_and_a_seed_repeats_them():
    probs = torch.full((2, 1000), 1e-3)
    first, again = (drawn(probs, torch.Generator().manual_seed(3)).tolist() for _ in range(2))
    assert first == again
    assert first[0] != first[1]


def test_a_token_that_is_certain_is_drawn_at_either_end():
    generator = torch.Generator().manual_seed(1)
    certain = torch.eye(500)[[0, 250, 499]]
    for _ in range(200):
        assert drawn(certain, generator).tolist() == [0, 250, 499]


def test_what_is_no_distribution_is_told():
    logits = torch.tensor([[0.0, torch.nan, 1.0], [torch.inf, torch.inf, 0.0]])
    tokens = choose(logits, 0.7, torch.Generator().manual_seed(0)).tolist()
    for token in tokens:
        with pytest.raises(
            MedusaError, match=r"not a number, its weights are damaged .* use --dtype float32"
        ):
            require_drawn([token], 3)
    require_drawn([0, 1, 2], 3)
