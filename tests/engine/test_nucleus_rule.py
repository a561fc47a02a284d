"""Nucleus acceptance against a walk over the paths one by one, and how far its output is from the nucleus."""

from __future__ import annotations

from collections import Counter

import pytest
import tiny
import torch
from chi_square import LEAST_P, p_value
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from table_models import counted, wanted

from medusa_core.acceptance.nucleus import NucleusRule, Settings

NUCLEUS = {"top_k": 4, "top_p": 0.85, "min_p": 0.06}


class Script(NucleusRule):
    """Draws what a test says, and remembers at which rows."""

    def __init__(self, drawn, ties="first"):
        super().__init__(1.0, Settings(ties), torch.Generator())
        self.drawn, self.rows = list(drawn), []

    def choose(self, logits):
        self.rows += logits[:, 0].long().tolist()
        return torch.tensor([self.drawn.pop(0) for _ in logits])


@given(st.data(), tiny.parent_lists(max_nodes=9))
def test_each_path_is_judged_by_draws_of_its_own(data, parents):
    tokens = data.draw(st.lists(st.integers(0, 1), min_size=len(parents), max_size=len(parents)))
    leaves = [node for node in range(len(parents)) if node not in parents]
    paths = [tiny.path_to(parents, leaf) for leaf in leaves]
    count = sum(len(path) - 1 for path in paths)
    drawn = data.draw(st.lists(st.integers(0, 1), min_size=count + 1, max_size=count + 1))
    rule = Script(drawn)
    logits = torch.zeros(len(parents), 2)
    logits[:, 0] = torch.arange(len(parents))  # so that a row names its node
    verdict = rule(tiny.token_tree(parents, tokens), logits)
    kept, rest = [], list(drawn)
    for path in paths:
        own, rest = rest[: len(path) - 1], rest[len(path) - 1 :]
        fits = [tokens[node] == token for node, token in zip(path[1:], own, strict=True)]
        kept.append(path[: 1 + ([*fits, False].index(False))])
    assert rule.rows == [node for path in paths for node in path[:-1]] + [verdict.path[-1]]
    assert verdict.path == max(kept, key=len)
    longest = [path for path in kept if len(path) == len(verdict.path)]
    assert Script(drawn, "random")(tiny.token_tree(parents, tokens), logits).path in longest
    assert verdict.passes == [any(node in path for path in kept) for node in range(len(parents))]
    assert verdict.bonus == drawn[-1]


def test_ties_at_random_keep_each_of_the_longest_paths_about_as_often():
    """Three children with one token, each drawn: a third each."""
    found = Counter()
    generator = torch.Generator().manual_seed(1)
    logits = torch.tensor([[0.0, 50.0]] * 4)
    for _ in range(300):
        rule = NucleusRule(1.0, Settings("random"), generator)
        found[rule(tiny.token_tree([-1, 0, 0, 0], [0, 1, 1, 1]), logits).path[1]] += 1
    assert chisquare(list(found.values())).pvalue > LEAST_P
    assert len(found) == 3


def test_plain_decoding_gets_the_nucleus_and_guesses_bias_it():
    """As the public code: what is guessed comes too often."""
    guessed = {"method": "draft_model", "draft_top_k": 2, "draft_depth": 2, "draft_nodes": 4}
    paths = {"plain": {"method": "none"}, "guessed": guessed}
    found = {name: counted(500, acceptance="nucleus", **NUCLEUS, **path)[0] for name, path in paths.items()}
    right = wanted(**NUCLEUS)
    assert p_value(found["plain"], right) > LEAST_P
    assert p_value(found["guessed"], right) < LEAST_P
    assert all(table[right == 0].sum() == 0 for table in found.values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_run_says_how_often_a_guess_was_drawn(engine, temperature):
    steps = tiny.run(engine, acceptance="nucleus", temperature=temperature, max_new_tokens=20)
    reasons = Counter(bool(step.verdict.reasons) for step in steps)
    assert reasons == {temperature > 0: len(steps)}
    for step in steps if temperature > 0 else ():
        for node, reason in enumerate(step.verdict.reasons):
            won, tried = map(int, reason.removeprefix("drawn ").removesuffix(" times").split(" of "))
            assert 0 <= won <= tried
            assert step.verdict.passes[node] == (won > 0 or node == 0)
