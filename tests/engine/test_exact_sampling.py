"""Matching and rejection sampling have exactly the model's distribution, with every kind of drafter.

The joint distribution of three new tokens over many seeded runs of the real loop, on models that are tables,
against the product of the table's entries: with drafters that draw, with those that do not and whose guesses
are kept with probability p, and with processed logits. Wrong rules show that the tests have power.
"""

from __future__ import annotations

import itertools

import pytest
import tiny
from chi_square import LEAST_P, p_value
from table_models import TEMPERATURE, counted, wanted

from medusa_core.acceptance.match import MatchRule
from medusa_core.acceptance.rejection import RejectionRule
from medusa_core.acceptance.verdict import Verdict

RUNS = 1200
TREE = {"method": "draft_model", "draft_top_k": 3, "draft_depth": 2, "draft_nodes": 9}
DRAFTS = {
    "plain decoding": {"method": "none"},
    "a chain": {"method": "draft_model", "draft_depth": 2},
    "a tree": TREE,
    "a tree that ends at its budget": TREE | {"draft_nodes": 4},
    "the likeliest tokens": TREE | {"draws": False},
    "ngram": {"method": "ngram", "draft_depth": 2},
    "lookup": {"method": "lookup", "lookup_ngram": 1},
    "suffixes": {"method": "suffix", "suffix_least": 0.02},
    "merged": TREE | {"method": "draft_model+ngram"},
    **{
        f"heads, {tree}": {"method": "medusa", "tree": tree}
        for tree in ("cartesian-3x2", "cartesian-2x2x1", "cartesian-5", "cartesian-1x4", "dynamic-7")
    },
}
HEADS = "heads, cartesian-3x2"
FAST = {  # the others are slow and count more runs
    ("a chain", "rejection"), ("a tree", "rejection"), ("heads, dynamic-7", "rejection"),
    (HEADS, "match"), ("a tree", "match"),
}  # fmt: skip
PROCESSED = {
    "penalty": {"penalty": 1.8, "penalty_window": 3, "min_p": 0.15},
    "nucleus": {"top_k": 4, "top_p": 0.85, "min_p": 0.06},
}
FAST_PROCESSED = {
    ("a chain", "rejection", "penalty"),
    ("a tree", "rejection", "nucleus"),
    ("suffixes", "rejection", "nucleus"),
}
SOME = ("plain decoding", "a chain", "a tree", "ngram", "suffixes", HEADS)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(name, rule, marks=() if (name, rule) in FAST else pytest.mark.slow)
        for name in DRAFTS
        for rule in ("match", "rejection")
    ],
)
def test_three_tokens_have_the_models_own_distribution(name, rule):
    found, accepted = counted(RUNS if (name, rule) in FAST else 4 * RUNS, acceptance=rule, **DRAFTS[name])
    assert p_value(found, wanted(), 30) > LEAST_P
    assert p_value(found, wanted(0.75 * TEMPERATURE), 30) < LEAST_P  # a wrong temperature is seen
    assert accepted > RUNS / 5 or name == "plain decoding"


@pytest.mark.parametrize(
    ("name", "rule", "settings"),
    [
        pytest.param(*row, marks=() if row in FAST_PROCESSED else pytest.mark.slow)
        for row in itertools.product(SOME, ("match", "rejection"), PROCESSED)
    ],
)
def test_processed_logits_give_exactly_their_distribution(name, rule, settings):
    """q is the draft model's own, p is processed: the residual of a rejected guess is of the processed p."""
    runs, settings = 700, PROCESSED[settings]
    found, accepted = counted(runs, acceptance=rule, **DRAFTS[name], **settings)
    right = wanted(**settings)
    assert found[right == 0].sum() == 0  # tokens that are left out are never drawn
    assert p_value(found, right) > LEAST_P
    assert p_value(found, wanted()) < LEAST_P
    assert accepted > runs / 5 or name == "plain decoding"


class WithoutResidual(RejectionRule):
    """Draws from p itself where every guess was rejected: the fault that the residual is there to undo."""

    def __call__(self, tree, logits):
        verdict = super().__call__(tree, logits)
        verdict.__dict__["bonus"] = int(self.choose(logits[verdict.path[-1]][None])[0])
        return verdict


class PerPathRule(MatchRule):
    """The fault of public code: every path draws its own tokens, and the luckiest path is taken."""

    def __call__(self, tree, logits):
        leaves = [node for node in range(tree.size) if node not in tree.parents]
        best, bonus = [0], None
        for leaf in leaves:
            path = tiny.path_to(tree.parents, leaf)
            draws = self.choose(logits[path]).tolist()
            kept = 1
            while kept < len(path) and int(tree.tokens[path[kept]]) == draws[kept - 1]:
                kept += 1
            if kept > len(best) or bonus is None:
                best, bonus = path[:kept], draws[kept - 1]
        return Verdict(best, tree.tokens[best].tolist(), bonus, [True] * tree.size, "")


@pytest.mark.parametrize(
    ("rule_class", "name"),
    [
        (PerPathRule, HEADS),
        (WithoutResidual, HEADS),
        pytest.param(WithoutResidual, "a chain", marks=pytest.mark.slow),
    ],
)
def test_a_rule_with_a_known_fault_is_seen(rule_class, name):
    runs = 3 * RUNS if name == "a chain" else RUNS // 2
    found, _ = counted(runs, rule_class=rule_class, acceptance="rejection", **DRAFTS[name])
    assert p_value(found, wanted()) < LEAST_P
