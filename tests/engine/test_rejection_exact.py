"""Rejection sampling has exactly the model's distribution, with every kind of drafter.

The joint distribution of three new tokens over many seeded runs of the real loop, on models that are tables,
against the product of the table's entries.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import table_models
import torch
from chi_square import LEAST_P, p_value

from medusa_core.acceptance import NoSettings, rejection, sampling_of
from medusa_core.config import GenerationConfig
from medusa_core.decoding import decode
from medusa_core.drafters import make_drafter
from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.text.stopping import Stopper

V = 5
NEW = 3
TEMPERATURE = 1.2
PROMPT = [1, 2, 0, 1, 2, 3, 1, 2, 4, 1, 2]
RUNS = 1200
TREE = {"draft_top_k": 3, "draft_depth": 2, "draft_nodes": 9}
DRAFTS = {
    "chain": ("draft_model", {"draft_depth": 2}, True),
    "tree": ("draft_model", TREE, True),
    "a tree that ends at its budget": ("draft_model", TREE | {"draft_nodes": 4}, True),
    "the likeliest tokens": ("draft_model", TREE, False),
    "ngram": ("ngram", {"draft_depth": 2}, True),
    "lookup": ("lookup", {"lookup_ngram": 1}, True),
    "merged": ("draft_model+ngram", TREE, True),
}
FAST = {"chain", "tree"}


def wanted():
    """Exact joint probabilities of three new tokens [V, V, V]."""
    p = (table_models.tables(V)[0].double() / TEMPERATURE).softmax(dim=-1)
    a, b = PROMPT[-2:]
    return p[a, b][:, None, None] * p[b][:, :, None] * p


def counts(method, settings, draws, rule_class=rejection.RejectionRule, runs=RUNS):
    """How often each triple came, [V, V, V], and how often a draft was accepted."""
    target, small = map(table_models.TableTarget, table_models.tables(V))
    found, accepted = Counter(), 0
    for seed in range(runs):
        config = GenerationConfig.of(
            method=method, acceptance="rejection", temperature=TEMPERATURE, seed=seed, **settings
        )
        generator = torch.Generator().manual_seed(seed)
        drafter = make_drafter(target, {"draft_model": ModelDraft(small)}, config)
        if draws and hasattr(drafter, "sample_by"):
            drafter.sample_by(sampling_of(config, generator))
        rule = rule_class(TEMPERATURE, NoSettings(), generator)
        stopper = Stopper(frozenset(), (), NEW, decode=str)
        tokens = []
        for step in decode(target, drafter, rule, PROMPT, stopper, NEW):
            tokens += step.emitted
            accepted += len(step.verdict.path) - 1
        found[tuple(tokens)] += 1
    table = np.zeros((V, V, V))
    for triple, count in found.items():
        table[triple] = count
    return table, accepted


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in DRAFTS]
)
def test_three_tokens_have_the_models_own_distribution(name):
    counted, accepted = counts(*DRAFTS[name], runs=RUNS if name in FAST else 4 * RUNS)
    assert p_value(counted, wanted(), 30) > LEAST_P
    assert accepted > RUNS / 5


class WithoutResidual(rejection.RejectionRule):
    """Draws from p itself where every guess was rejected: the fault that the residual is there to undo."""

    def __call__(self, tree, logits):
        verdict = super().__call__(tree, logits)
        verdict.__dict__["bonus"] = int(self.choose(logits[verdict.path[-1]][None])[0])
        return verdict


def test_a_missing_residual_is_seen():
    assert p_value(counts(*DRAFTS["chain"], rule_class=WithoutResidual)[0], wanted(), 30) < LEAST_P
