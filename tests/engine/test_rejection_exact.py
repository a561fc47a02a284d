"""Rejection sampling has exactly the model's distribution, with every kind of drafter.

The joint distribution of three new tokens over many seeded runs of the real loop, on models that are tables,
against the product of the table's entries: with drafters that draw, with Medusa's heads, which draw nothing
and whose guesses are kept with probability p, and under the penalty and min-p.
"""

from __future__ import annotations

import plain_penalty
import pytest
import table_models
import torch
import torch.nn.functional as F
from chi_square import LEAST_P, counted, joint, p_value

from medusa_core.acceptance import rejection
from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads

V = 5
TEMPERATURE = 1.2
PROMPT = [1, 2, 0, 1, 2, 3, 1, 2, 4, 1, 2]
RUNS = 1200
TREE = {"draft_top_k": 3, "draft_depth": 2, "draft_nodes": 9}
DRAFTS = {
    "chain": ("draft_model", {"draft_depth": 2}),
    "tree": ("draft_model", TREE),
    "a tree that ends at its budget": ("draft_model", TREE | {"draft_nodes": 4}),
    "the likeliest tokens": ("draft_model", TREE),
    "ngram": ("ngram", {"draft_depth": 2}),
    "lookup": ("lookup", {"lookup_ngram": 1}),
    "merged": ("draft_model+ngram", TREE),
}
FAST = {"chain", "tree"}
PROCESSED = {"penalty": 1.8, "penalty_window": 3, "min_p": 0.15}


def wanted(*, processed=False):
    """Exact probabilities of three new tokens, under penalty and min-p the slow way."""
    table = table_models.tables(V)[0]

    def next_p(text):
        logits = table[text[-2], text[-1]]
        if processed:
            logits = plain_penalty.penalised(logits, text, PROCESSED["penalty"], PROCESSED["penalty_window"])
            logits = plain_penalty.likely(logits, TEMPERATURE, PROCESSED["min_p"])
        return (logits.double() / TEMPERATURE).softmax(dim=-1)

    return joint(next_p, PROMPT, V)


def counts(name, runs=RUNS, **changes):
    """Those of the drafters above."""
    target, small = map(table_models.TableTarget, table_models.tables(V))
    method, settings = DRAFTS[name]
    settings = {"method": method, "acceptance": "rejection", "temperature": TEMPERATURE, **settings}
    draws = name != "the likeliest tokens"
    return counted(
        target, {"draft_model": ModelDraft(small)}, PROMPT, runs, draws=draws, **settings | changes
    )


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in DRAFTS]
)
def test_three_tokens_have_the_models_own_distribution(name):
    found, accepted = counts(name, RUNS if name in FAST else 4 * RUNS)
    assert p_value(found, wanted(), 30) > LEAST_P
    assert accepted > RUNS / 5


class WithoutResidual(rejection.RejectionRule):
    """Draws from p itself where every guess was rejected: the fault that the residual is there to undo."""

    def __call__(self, tree, logits):
        verdict = super().__call__(tree, logits)
        verdict.__dict__["bonus"] = int(self.choose(logits[verdict.path[-1]][None])[0])
        return verdict


def test_a_missing_residual_is_seen():
    assert p_value(counts("chain", rule_class=WithoutResidual)[0], wanted(), 30) < LEAST_P


@pytest.mark.parametrize("name", ["chain", pytest.param("tree", marks=pytest.mark.slow)])
def test_drawn_guesses_under_a_penalty_have_the_processed_distribution(name):
    """q is the draft model's own, p is processed: the residual of a rejected guess is of the processed p."""
    runs = 700
    found, accepted = counts(name, runs, **PROCESSED)
    right = wanted(processed=True)
    assert found[right == 0].sum() == 0
    assert accepted > runs / 5
    assert p_value(found, right) > LEAST_P
    assert p_value(found, wanted()) < LEAST_P


# --- The trees of Medusa's heads: what they read are the last two tokens.

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


def head_counts(tree, runs, rule_class=None):
    last = torch.randn(HEADS, V, 2 * V, generator=torch.Generator().manual_seed(5))
    heads = MedusaHeads(torch.zeros(HEADS, 1, 2 * V, 2 * V), torch.zeros(HEADS, 1, 2 * V), last)
    target, drafts = PairTarget(table_models.tables(V)[0]), {"medusa": MedusaDraft(heads)}
    settings = {"method": "medusa", "acceptance": "rejection", "temperature": TEMPERATURE, "tree": tree}
    return counted(target, drafts, PROMPT, runs, rule_class=rule_class, **settings)


@pytest.mark.parametrize(
    ("tree", "runs"),
    [
        *((tree, RUNS) for tree in (TREES[0], TREES[-1])),
        *(pytest.param(tree, 4 * RUNS, marks=pytest.mark.slow) for tree in TREES),
    ],
)
def test_three_tokens_have_it_with_the_trees_of_heads(tree, runs):
    found, accepted = head_counts(tree, runs)
    assert p_value(found, wanted(), 30) > LEAST_P
    assert accepted > RUNS / 5


@pytest.mark.slow
def test_a_missing_residual_is_seen_with_heads():
    assert p_value(head_counts(TREES[0], 4 * RUNS, WithoutResidual)[0], wanted(), 30) < LEAST_P
