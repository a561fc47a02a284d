"""The matching rule draws from the model's distribution: what it keeps of one tree, on logits that stay.

A verdict is an accepted path and a bonus token after it. Its probability is a product of the model's own: a
draft is kept when it is the token drawn at its parent, and the bonus is a draw that hit no draft. Thousands
of verdicts are counted against that. ``test_exact_sampling`` counts whole runs of the loop, which is slow.
"""

from __future__ import annotations

from collections import Counter

import chi_square
import pytest
import tiny
import torch
from one_draw_a_path import PerPathRule

from medusa_core.acceptance import NoSettings, match
from medusa_core.acceptance.sampling import probabilities

VOCABULARY = 8
DRAWS = 4000
TEMPERATURE = 1.2
# Three drafts below the root, two below the first of them, one below the second, one deeper still.
PARENTS = [-1, 0, 0, 0, 1, 1, 2, 4]
TOKENS = [3, 0, 5, 6, 0, 7, 2, 4]


@pytest.fixture(scope="module")
def logits():
    return torch.randn(len(PARENTS), VOCABULARY, generator=torch.Generator().manual_seed(4))


def exact(logits, temperature=TEMPERATURE):
    """Probability of every verdict, by (last node of the path, bonus token)."""
    p = torch.softmax(logits.double() / temperature, dim=-1)
    reached, found = [1.0], {}
    for node in range(1, len(PARENTS)):
        reached.append(reached[PARENTS[node]] * float(p[PARENTS[node], TOKENS[node]]))
    for node, chance in enumerate(reached):
        drafted = {TOKENS[child] for child, parent in enumerate(PARENTS) if parent == node}
        for token in set(range(VOCABULARY)) - drafted:
            found[node, token] = chance * float(p[node, token])
    assert sum(found.values()) == pytest.approx(1.0)
    return found


def p_value(rule_class, logits, wanted):
    """Of the χ² test over the verdicts, and 0 when one is impossible."""
    rule = rule_class(TEMPERATURE, NoSettings(), torch.Generator().manual_seed(0))
    tree, counts = tiny.token_tree(PARENTS, TOKENS), Counter()
    for _ in range(DRAWS):
        verdict = rule(tree, logits)
        counts[verdict.path[-1], verdict.bonus] += 1
    names = list(wanted)
    if set(counts) - set(names):
        return 0.0
    return chi_square.p_value([counts[name] for name in names], list(wanted.values()))


def test_what_is_kept_of_a_tree_has_the_models_own_distribution(logits):
    assert p_value(match.MatchRule, logits, exact(logits)) > chi_square.LEAST_P


def test_the_wrong_temperature_is_seen(logits):
    assert p_value(match.MatchRule, logits, exact(logits, 1.0)) < chi_square.LEAST_P


def test_one_draw_a_path_is_seen(logits):
    """It draws drafts that it does not keep, which no draw at a node can do."""
    assert p_value(PerPathRule, logits, exact(logits)) < chi_square.LEAST_P


def test_temperature_zero_has_no_distribution():
    with pytest.raises(ValueError, match="no distribution"):
        probabilities(torch.zeros(1, 3), 0.0)
