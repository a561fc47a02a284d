"""Rejection sampling keeps the model's distribution with the trees of Medusa's heads, which draw nothing.

Each guess counts as one that the drafter is sure of, so that it is kept with probability p. The model is a
table of the last two tokens, and what its heads read are these two tokens.
"""

from __future__ import annotations

import pytest
import table_models
import torch
import torch.nn.functional as F
from chi_square import LEAST_P, p_value
from test_rejection_exact import NEW, PROMPT, RUNS, TEMPERATURE, V, WithoutResidual, wanted

from medusa_core.acceptance import NoSettings, rejection
from medusa_core.config import GenerationConfig
from medusa_core.decoding import decode
from medusa_core.drafters import make_drafter
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.text.stopping import Stopper

TREES = ("cartesian-3x2", "cartesian-2x2x1", "cartesian-5", "cartesian-1x4", "dynamic-7")
HEADS = 3


class PairTarget(table_models.TableTarget):
    """The table, with hidden states that say which two tokens it was asked about: [T, 2 V]."""

    def prefill(self, tokens, cache, features):
        logits, _ = super().prefill(tokens, cache)
        return logits, self._hidden([cache.tokens[-2]], [cache.tokens[-1]])

    def verify(self, tree, cache, features):
        logits, _ = super().verify(tree, cache)
        tokens = tree.tokens.tolist()
        before = [tokens[parent] if parent >= 0 else cache.tokens[-1] for parent in tree.parents]
        return logits, self._hidden(before, tokens)

    @staticmethod
    def _hidden(before, tokens):
        return torch.cat([F.one_hot(torch.tensor(ids), V) for ids in (before, tokens)], dim=1).float()


def counts(tree, runs, rule_class=rejection.RejectionRule):
    """How often each triple came, [V, V, V], and how many guesses were accepted."""
    target = PairTarget(table_models.tables(V)[0])
    generator = torch.Generator().manual_seed(5)
    last = torch.randn(HEADS, V, 2 * V, generator=generator)
    heads = MedusaHeads(torch.zeros(HEADS, 1, 2 * V, 2 * V), torch.zeros(HEADS, 1, 2 * V), last)
    drafts, found, accepted = {"medusa": MedusaDraft(heads)}, torch.zeros(V, V, V), 0
    for seed in range(runs):
        config = GenerationConfig.of(method="medusa", temperature=TEMPERATURE, seed=seed, tree=tree)
        rule = rule_class(TEMPERATURE, NoSettings(), torch.Generator().manual_seed(seed))
        stopper = Stopper(frozenset(), (), NEW, decode=str)
        drafter = make_drafter(target, drafts, config)
        tokens = []
        for step in decode(target, drafter, rule, PROMPT, stopper, NEW):
            tokens += step.emitted
            accepted += len(step.verdict.path) - 1
        found[tuple(tokens)] += 1
    return found.numpy(), accepted


@pytest.mark.parametrize("tree", [TREES[0], TREES[-1]])
def test_three_tokens_have_the_models_own_distribution(tree):
    counted, accepted = counts(tree, RUNS)
    assert p_value(counted, wanted(), 30) > LEAST_P
    assert accepted > RUNS / 5


@pytest.mark.slow
@pytest.mark.parametrize("tree", TREES)
def test_three_tokens_have_it_with_every_tree(tree):
    counted, accepted = counts(tree, 4 * RUNS)
    assert p_value(counted, wanted(), 30) > LEAST_P
    assert accepted > RUNS / 5


@pytest.mark.slow
def test_a_missing_residual_is_seen():
    assert p_value(counts(TREES[0], 4 * RUNS, WithoutResidual)[0], wanted(), 30) < LEAST_P
