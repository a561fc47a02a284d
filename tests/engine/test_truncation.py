"""Top-k and top-p: the tokens they leave are those of the obvious way and of transformers, for every rule.

The joint distribution of three new tokens over many seeded runs of the real loop, on a model that is a table.
"""

from __future__ import annotations

from functools import partial

import plain_penalty
import pytest
import tiny
import torch
from chi_square import LEAST_P, p_value
from hypothesis import given
from hypothesis import strategies as st
from table_models import TEMPERATURE, counted, wanted
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from medusa_core.acceptance.logits.processor import processor_of, top_k_only, top_p_only
from medusa_core.config import GenerationConfig
from medusa_core.drafters._options import idle_options

RUNS = 500
TREE = {"method": "draft_model", "draft_depth": 2}
BOTH = {"temperature": TEMPERATURE, "top_k": 4, "top_p": 0.85, "min_p": 0.06}
PATHS = {
    "draws by p/q": ("rejection", TREE | {"draft_top_k": 3, "draft_nodes": 9}),
    "the likeliest guesses": ("match", TREE | {"draft_top_k": 2, "draft_nodes": 4}),
    "suffixes": ("rejection", {"method": "suffix", "suffix_least": 0.02}),
    "n-grams": ("match", {"method": "ngram", "draft_depth": 2}),
}
FAST = {"draws by p/q", "suffixes"}


def random_logits(seed, rows=4, vocabulary=7):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2


@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 1.7]), st.integers(1, 9), st.floats(0.05, 0.99))
def test_what_is_left_is_the_obvious_choice_and_transformers(seed, temperature, top_k, top_p):
    logits = random_logits(seed)
    by_number = top_k_only(logits, top_k)
    assert torch.equal(by_number, TopKLogitsWarper(top_k)(None, logits))
    both = top_p_only(by_number, temperature, top_p)
    slow = partial(plain_penalty.truncated, temperature=temperature, top_k=top_k, top_p=top_p)
    assert torch.equal(both, torch.stack([slow(row) for row in logits]))
    theirs = TopPLogitsWarper(top_p)(None, by_number / temperature)
    assert torch.equal(both.isfinite(), theirs.isfinite())


def test_a_run_judges_every_node_by_what_is_left(engine):
    config = GenerationConfig.of(max_new_tokens=12, acceptance="typical", **BOTH)
    for step in engine.stream(tiny.PROMPT, config):
        slow = partial(plain_penalty.truncated, **BOTH)
        assert torch.equal(step.logits, torch.stack([slow(row) for row in step.model_logits]))
        assert all(p > 0 for node in step.verdict.path[1:] for p in [step.verdict.statistics.p[node]])


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PATHS]
)
def test_sampled_text_has_exactly_the_truncated_distribution(name):
    rule, settings = PATHS[name]
    found, accepted = counted(RUNS, acceptance=rule, **settings, **BOTH)
    right = wanted(**BOTH)
    assert found[right == 0].sum() == 0  # tokens left out are never drawn
    assert accepted > RUNS / 5
    assert p_value(found, right) > LEAST_P
    assert p_value(found, wanted()) < LEAST_P


def test_at_temperature_0_they_count_for_nothing_and_are_named():
    settings = {"top_k": 3, "top_p": 0.5}
    assert processor_of(GenerationConfig.of(**settings)) is None
    assert idle_options(GenerationConfig.of(**settings)) == dict.fromkeys(settings, "--temperature 0")
    assert idle_options(GenerationConfig.of(temperature=1.0, **settings)) == {}
