"""Rejection sampling, one verdict at a time: its words, its path, and what a run makes of it."""

from __future__ import annotations

import re

import pytest
import small_model
import tiny
import torch

from medusa_core.acceptance import NoSettings, sampling_of
from medusa_core.acceptance.rejection import RejectionRule
from medusa_core.acceptance.sampling import Sampling
from medusa_core.config import GenerationConfig
from medusa_core.engine import RunState
from medusa_core.trace.format import RunTrace

PARENTS, TOKENS = [-1, 0, 0, 0, 1, 1, 2], [3, 0, 5, 6, 0, 7, 2]
WORDS = re.compile(
    r"u = (\S+) ([<≥]) (p|p/q) = ([^,\s]+)(?:, p = (\S+), q = ([^,\s]+))?(?:, (\d+) refused before)?$"
)


@pytest.fixture(scope="module")
def drafting(engine):
    return small_model.with_draft_model(engine)


def test_each_reason_is_what_was_compared():
    """A number below the bar keeps a guess; those behind it and beside it say why nothing was compared."""
    tree, seen = tiny.token_tree(PARENTS, TOKENS), set()
    rule = RejectionRule(1.2, NoSettings(), torch.Generator().manual_seed(1))
    logits = torch.randn(len(PARENTS), 8, generator=torch.Generator().manual_seed(4))
    for verdict in (rule(tree, logits) for _ in range(60)):
        for node in range(1, len(PARENTS)):
            reason, kept = verdict.reasons[node], node in verdict.path
            assert verdict.passes[node] == kept
            if found := WORDS.match(reason):
                u, sign, _, bar, *_, refused = found.groups()
                assert (sign == "<") == kept == (float(u) < float(bar))
                assert PARENTS[node] in verdict.path
                assert int(refused or 0) == sum(PARENTS[other] == PARENTS[node] for other in range(node))
            elif "before it was not accepted" in reason:
                assert PARENTS[node] not in verdict.path
            else:
                assert "at the same place was accepted" in reason
                assert any(PARENTS[other] == PARENTS[node] for other in verdict.path if other != node)
            seen.add(WORDS.sub("compared", reason))
    assert len(seen) == 3


def test_a_reason_with_q_holds_all_numbers_of_the_comparison(drafting):
    """p/q of the numbers that are left behind refused siblings; the first one at a place has q as drawn."""
    steps = tiny.run(
        drafting, method="draft_model", acceptance="rejection", temperature=0.9, draft_top_k=3,
        draft_depth=2, draft_nodes=12, max_new_tokens=40,
    )  # fmt: skip
    tried = []
    for step in steps:
        for node, reason in enumerate(step.verdict.reasons[1:], start=1):
            if found := WORDS.match(reason):
                ratio, p, q = (float(found[place]) for place in (4, 5, 6))
                assert ratio == pytest.approx(p / q, rel=1e-6)
                if not found[7]:
                    parent = step.tree.parents[node]
                    drawn = step.tree.draft_probs[parent][step.tree.tokens[node]]
                    assert q == pytest.approx(float(drawn), rel=1e-6)
                tried.append(found[7])
    assert {None, "1"} <= set(tried)


def test_a_drafter_equal_to_the_model_is_always_accepted(engine):
    """p = q: min(1, p/q) is 1 for every guess that is drawn."""
    same = small_model.with_draft_model(engine, engine.target.model)
    for branches in (1, 3):
        steps = tiny.run(
            same, method="draft_model", acceptance="rejection", temperature=1.3, max_new_tokens=30,
            draft_depth=4, draft_top_k=branches, draft_nodes=40,
        )  # fmt: skip
        drawn = [step.tree for step in steps]
        assert all(tree.draft_probs is not None for tree in drawn if tree.size > 1)
        assert all(step.verdict.path[-1] not in step.tree.parents for step in steps)  # to a leaf


def test_draws_without_replacement_come_in_the_order_of_their_shares():
    """The first is a draw from p, the second one from the rest; impossible tokens never come."""
    probs = torch.tensor([0.5, 0.3, 0.2, 0.0])
    sampling = Sampling(1.0, torch.Generator().manual_seed(0))
    pairs = torch.stack([sampling.draw(probs, 2) for _ in range(4000)])
    for first in range(3):
        share = (pairs[:, 0] == first).float().mean()
        assert share == pytest.approx(float(probs[first]), abs=0.03)
        rest = pairs[pairs[:, 0] == first, 1]
        for second in set(range(3)) - {first}:
            wanted = float(probs[second] / (1 - probs[first]))
            assert float((rest == second).float().mean()) == pytest.approx(wanted, abs=0.05)
    assert sorted(sampling.draw(probs, 9).tolist()) == [0, 1, 2]


def test_a_run_draws_only_where_the_rule_weighs_it(drafting):
    for settings, draws in (
        ({"acceptance": "rejection", "temperature": 0.8}, True),
        ({"acceptance": "rejection"}, False),
        ({"acceptance": "match", "temperature": 0.8}, False),
    ):
        steps = tiny.run(drafting, method="draft_model", max_new_tokens=6, **settings)
        assert (steps[0].tree.draft_probs is not None) == draws
        config = GenerationConfig.of(**settings)
        assert (sampling_of(config, torch.Generator()) is not None) == draws


def test_a_conversation_draws_by_the_settings_of_each_run(drafting):
    """The drafter is kept between runs, and its draws are those of a fresh one with the same seed."""
    state = RunState(drafting.target.new_cache(0))
    settings = {"method": "draft_model", "acceptance": "rejection", "draft_top_k": 2, "max_new_tokens": 12}
    prompt = list(tiny.PROMPT)
    for temperature in (0.9, 1.4, 0.0, 0.9):
        config = GenerationConfig.of(temperature=temperature, seed=5, **settings)
        fresh = [step.tree.tokens.tolist() for step in drafting.stream(prompt, config)]
        kept = list(drafting.stream(prompt, config, state=state))
        assert [step.tree.tokens.tolist() for step in kept] == fresh
        prompt += [token for step in kept for token in step.emitted]


@pytest.mark.parametrize("method", ["draft_model", "medusa", "draft_model+ngram"])
def test_a_trace_carries_the_reasons(drafting, method):
    config = GenerationConfig.of(
        method=method, acceptance="rejection", temperature=0.9, tree="cartesian-3x2", max_new_tokens=20
    )
    trace = RunTrace.model_validate(tiny.recorded(drafting, config).finish())
    reasons = {node.reason for step in trace.steps for node in step.nodes if node.parent is not None}
    assert all(WORDS.match(reason) or reason.startswith("not tried") for reason in reasons)
    assert {"p/q" if method == "draft_model" else "p"} == {
        found[3] for reason in reasons if (found := WORDS.match(reason))
    }
