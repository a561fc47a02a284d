"""Matching at temperature > 0 has exactly the model's distribution; a test with power to see otherwise.

The joint distribution of the first three new tokens, over thousands of seeded runs of the real loop, against
the one computed from the model. The model is real; its forwards are remembered, since the runs meet only a
few hundred contexts.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import tiny
import torch
from chi_square import LEAST_P, p_value
from one_draw_a_path import PerPathRule

from medusa_core.acceptance import NoSettings, match
from medusa_core.config import GenerationConfig
from medusa_core.decoding import decode
from medusa_core.drafters import make_drafter
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.model.target import Target
from medusa_core.text.stopping import Stopper
from medusa_core.trees.tree import load_tree

V = 8
NEW = 3
RUNS = 2000
TEMPERATURE = 1.2
PROMPT = [3, 0, 5]

# One step's rule is counted in test_draws; here are thousands of whole runs.
pytestmark = pytest.mark.slow


class RememberedCache:
    """Stands in for the cache: the tokens read so far, and those of the tree looked at last."""

    def __init__(self):
        self.tokens, self.tree = [], []

    @property
    def length(self):
        return len(self.tokens)

    def commit(self, path):
        self.tokens += [self.tree[node] for node in path]


class RememberingTarget(Target):
    """The real target; a forward over the same tokens is computed once."""

    def __init__(self, model):
        super().__init__(model)
        self.known = {}

    def new_cache(self, slots):
        return RememberedCache()

    def prefill(self, tokens, cache, features):
        cache.tokens = list(tokens)
        return self._remember(
            ("prefill", *tokens), lambda real: super(RememberingTarget, self).prefill(tokens, real, features)
        )

    def verify(self, tree, cache, features):
        cache.tree = tree.tokens.tolist()

        def forward(real):
            super(RememberingTarget, self).prefill(cache.tokens, real)
            return super(RememberingTarget, self).verify(tree, real, features)

        return self._remember((*cache.tokens, "tree", *cache.tree), forward)

    def _remember(self, key, forward):
        if key not in self.known:
            self.known[key] = forward(super().new_cache(64))
        return self.known[key]


@pytest.fixture(scope="module")
def small_model():
    return tiny.build_model(tiny.tiny_config(kv_heads=2, vocab_size=V, initializer_range=0.25), seed=3)


@pytest.fixture(scope="module")
def wanted(small_model):
    """Exact joint probabilities of three new tokens [V, V, V], from plain forwards of the model."""
    contexts = [[*PROMPT, *pair] for pair in itertools.product(range(V), repeat=2)]
    logits = small_model(torch.tensor(contexts)).logits[:, len(PROMPT) - 1 :]
    p = torch.softmax(logits.double() / TEMPERATURE, dim=-1).reshape(V, V, 3, V)
    return p[0, 0, 0][:, None, None] * p[:, 0, 1][:, :, None] * p[:, :, 2]


def sampled_counts(target, heads, tree, rule_class, runs=RUNS):
    """How often each triple came, [V, V, V]."""
    counts: Counter = Counter()
    topology, drafts = load_tree(tree), {"medusa": MedusaDraft(heads)} if heads else {}
    for seed in range(runs):
        config = GenerationConfig.of(
            method="medusa" if heads else "none", temperature=TEMPERATURE, seed=seed, max_new_tokens=NEW
        )
        drafter = make_drafter(target, drafts, config.changed(tree=topology))
        rule = rule_class(config.temperature, NoSettings(), torch.Generator().manual_seed(seed))
        stopper = Stopper(frozenset(), (), NEW, decode=str)
        counts[tuple(tiny.emitted(decode(target, drafter, rule, PROMPT, stopper, NEW)))] += 1
    table = np.zeros((V, V, V))
    for triple, count in counts.items():
        table[triple] = count
    return table


@pytest.fixture(scope="module")
def plain_counts(small_model):
    return sampled_counts(RememberingTarget(small_model), None, "cartesian-1", match.MatchRule)


def test_matching_samples_from_the_models_own_distribution(small_model, wanted):
    heads = tiny.random_heads(small_model)
    counts = sampled_counts(RememberingTarget(small_model), heads, "cartesian-4x3x2", match.MatchRule)
    assert p_value(counts, wanted, 40) > LEAST_P


def test_plain_sampling_has_the_same_distribution(plain_counts, wanted):
    assert p_value(plain_counts, wanted, 40) > LEAST_P


def test_one_draw_a_path_is_biased_and_this_test_sees_it(small_model, wanted):
    counts = sampled_counts(
        RememberingTarget(small_model),
        tiny.random_heads(small_model),
        "cartesian-4x3x2",
        PerPathRule,
        runs=1200,
    )
    assert p_value(counts, wanted, 40) < LEAST_P


def test_the_wrong_temperature_is_seen(plain_counts, wanted):
    other = (wanted + 1e-12) ** 0.8
    assert p_value(plain_counts, other / other.sum(), 40) < LEAST_P


def test_remembered_forwards_change_nothing(small_model):
    """The stand-in gives the very runs of the real engine."""
    heads = tiny.random_heads(small_model)
    engine = tiny.build_engine(small_model, heads, tokenizer=False)
    target = RememberingTarget(small_model)
    for seed in range(10):
        config = GenerationConfig.of(
            temperature=TEMPERATURE, seed=seed, max_new_tokens=NEW, tree="cartesian-4x3x2"
        )
        drafter = make_drafter(target, {"medusa": MedusaDraft(heads)}, config)
        rule = match.MatchRule(config.temperature, NoSettings(), torch.Generator().manual_seed(seed))
        stopper = Stopper(frozenset(), (), NEW, decode=str)
        remembered = tiny.emitted(decode(target, drafter, rule, PROMPT, stopper, NEW))
        assert remembered == tiny.emitted(engine.stream(PROMPT, config))
