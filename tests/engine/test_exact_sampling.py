"""Matching at temperature > 0 has exactly the model's distribution; a test with power to see otherwise.

The joint distribution of the first three new tokens, over thousands of seeded runs of the real loop, against
the one computed from the model. The model is real; its forwards are remembered, since the runs meet only a
few hundred contexts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import tiny
import torch
from chi_square import LEAST_P, NEW, counted, joint, p_value
from one_draw_a_path import PerPathRule
from table_models import TextCache
from tokenswift_heads import random_tokenswift, with_tokenswift

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.tokenswift.draft import TokenSwiftDraft
from medusa_core.loading.load import load_engine
from medusa_core.model.target import Target

V = 8
RUNS = 2000
TEMPERATURE = 1.2
PROMPT = [3, 0, 5]
TREE = "cartesian-4x3x2"

# One step's rule is counted in test_draws; here are thousands of whole runs.
pytestmark = pytest.mark.slow


class RememberingTarget(Target):
    """The real target; a forward over the same tokens is computed once."""

    def __init__(self, model):
        super().__init__(model)
        self.known = {}

    def new_cache(self, slots):
        return TextCache(slots)

    def prefill(self, tokens, cache, features):
        cache.written = list(tokens)
        cache.commit(range(len(tokens)))
        return self._remember(
            ("prefill", *tokens), lambda real: super(RememberingTarget, self).prefill(tokens, real, features)
        )

    def verify_all(self, trees, caches, features):
        return [self._verify(*one, features) for one in zip(trees, caches, strict=True)]

    def _verify(self, tree, cache, features):
        cache.written = tree.tokens.tolist()

        def forward(real):
            super(RememberingTarget, self).prefill(cache.tokens, real)
            return super(RememberingTarget, self).verify(tree, real, features)

        return self._remember((*cache.tokens, "tree", *cache.written), forward)

    def _remember(self, key, forward):
        if key not in self.known:
            self.known[key] = forward(super().new_cache(64))
        return self.known[key]


@pytest.fixture(scope="module")
def small_model():
    return tiny.build_model(tiny.tiny_config(kv_heads=2, vocab_size=V, initializer_range=0.25), seed=3)


def next_p(model, text):
    """Exact probabilities [V] of the token after a text, from a plain forward."""
    return torch.softmax(model(torch.tensor([text])).logits[0, -1].double() / TEMPERATURE, dim=-1)


@pytest.fixture(scope="module")
def wanted(small_model):
    return joint(partial(next_p, small_model), PROMPT, V)


def sampled_counts(model, rule_class=None, runs=RUNS, **settings):
    """How often each triple came with random heads, [V, V, V]."""
    drafts = {"medusa": MedusaDraft(tiny.random_heads(model))}
    settings = {"temperature": TEMPERATURE, "tree": TREE} | settings
    target = RememberingTarget(model)
    return counted(target, drafts, PROMPT, runs, rule_class=rule_class, **settings)[0]


@pytest.fixture(scope="module")
def plain_counts(small_model):
    return sampled_counts(small_model, method="none")


def test_matching_samples_from_the_models_own_distribution(small_model, wanted):
    assert p_value(sampled_counts(small_model), wanted, 40) > LEAST_P


def test_plain_sampling_has_the_same_distribution(plain_counts, wanted):
    assert p_value(plain_counts, wanted, 40) > LEAST_P


def test_one_draw_a_path_is_biased_and_this_test_sees_it(small_model, wanted):
    assert p_value(sampled_counts(small_model, PerPathRule, runs=1200), wanted, 40) < LEAST_P


def test_the_wrong_temperature_is_seen(plain_counts, wanted):
    other = (wanted + 1e-12) ** 0.8
    assert p_value(plain_counts, other / other.sum(), 40) < LEAST_P


def test_remembered_forwards_change_nothing(small_model):
    """The stand-in gives the very runs of the real engine."""
    engine = tiny.build_engine(small_model, tiny.random_heads(small_model), tokenizer=False)
    remembering = replace(engine, target=RememberingTarget(small_model))
    for seed in range(10):
        config = GenerationConfig.of(temperature=TEMPERATURE, seed=seed, max_new_tokens=NEW, tree=TREE)
        runs = [tiny.emitted(each.stream(PROMPT, config)) for each in (remembering, engine)]
        assert runs[0] == runs[1]


# --- TokenSwift keeps the model's own distribution and text too, on drafts that see a part of the text.


PART = {"draft_budget": 32, "draft_sinks": 8}


@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_drafts_that_see_a_part_of_the_text_keep_the_distribution(small_model, rule):
    """In the public code a draw a path biases the first tokens."""
    prompt = tiny.random_tokens(40, seed=2, vocabulary=V)  # longer than what a draft sees
    engine = with_tokenswift(tiny.build_engine(small_model, None, tokenizer=False))
    settings = {"method": "tokenswift", "tree": "cartesian-2x3x2", "acceptance": rule, **PART}
    found, accepted = counted(engine.target, engine.drafts, prompt, RUNS, temperature=TEMPERATURE, **settings)
    assert p_value(found, joint(partial(next_p, small_model), prompt, V), 40) > LEAST_P
    assert accepted > RUNS / 5


def test_the_embedded_model_says_what_it_says_alone():
    """In float32, over a text many times as long as what a draft sees."""
    engine = load_engine(LoadConfig(dtype="float32", device="cpu"))
    draft = TokenSwiftDraft(random_tokenswift(engine.target.model))
    engine = replace(engine, drafts={"tokenswift": draft})
    prompt = engine.encode("Once upon a time, there was a small owl who lived in an old oak.")
    config = GenerationConfig.of(max_new_tokens=600, method="tokenswift", ignore_eos=True, **PART)
    steps = list(engine.stream(prompt, config))
    plain = list(engine.stream(prompt, config.changed(method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(plain) > 1.2 * len(steps)
