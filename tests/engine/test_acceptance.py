"""Acceptance rules against an obvious slow version; greedy acceptance is one rule wherever it is written."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_verdict import V, cases
from torch.nn import functional as F
from transformers import LogitsProcessorList

from medusa_core.acceptance import make_rule, rule_names
from medusa_core.acceptance.match import matched
from medusa_core.acceptance.sampling import largest
from medusa_core.acceptance.verdict import longest_path
from medusa_core.config import GenerationConfig
from medusa_core.custom_generate.rules import ProcessedMatch
from medusa_core.errors import MedusaError

VOCABULARY = 6  # few tokens, so that drafts are often right and token 0 is common


def rule_for(seed=0, **settings_):
    return make_rule(GenerationConfig.of(**settings_), torch.Generator().manual_seed(seed))


def random_case(parents, seed):
    """A tree with random tokens and peaked random logits [N, VOCABULARY]."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(parents), VOCABULARY, generator=generator) * 2
    return tiny.token_tree(parents, tiny.random_tokens(len(parents), seed + 1, VOCABULARY)), logits


def distribution(row, temperature):
    """softmax with plain floats."""
    scaled = [value / temperature for value in row]
    powers = [math.exp(value - max(scaled)) for value in scaled]
    return [power / sum(powers) for power in powers]


def slow_entropy(p):
    return -sum(value * math.log(value + 1e-5) for value in p)


def best_path(tree, passes, logp):
    """Of all root-to-node paths whose nodes pass: the longest, then the likeliest, then the first."""
    candidates = []
    for node in range(tree.size):
        path = tiny.path_to(tree.parents, node)
        if all(passes[step] for step in path[1:]):
            candidates.append((-len(path), -sum(logp[step] for step in path[1:]), node, path))
    return min(candidates)[-1]


def slow_greedy(tree, logits):
    """Passes of greedy matching: a node is the argmax at its parent."""
    tokens, rows = tree.tokens.tolist(), logits.tolist()
    return [
        parent < 0 or tokens[node] == rows[parent].index(max(rows[parent]))
        for node, parent in enumerate(tree.parents)
    ]


def test_rules_are_found_by_file_name():
    assert {"match", "typical"} <= set(rule_names())
    assert "verdict" not in rule_names()
    known = ", ".join(rule_names())
    with pytest.raises(MedusaError, match=f"no acceptance rule 'best': use one of {known}"):
        rule_for(acceptance="best")


@pytest.mark.parametrize("name", rule_names())
@given(
    parents=tiny.parent_lists(14), seed=st.integers(0, 10**6), temperature=st.sampled_from([0.0, 0.7, 1.0])
)
def test_every_rule_s_verdict_is_a_path_of_nodes_that_pass(name, parents, seed, temperature):
    """As the loop, the trace and the page read it; what a rule accepts is for its own tests."""
    tree, logits = random_case(parents, seed)
    drawn = {"root": "sample"} if name == "typical" else {}
    rule = rule_for(seed=seed, acceptance=name, temperature=temperature, **drawn)
    assert rule.by_argmax == (temperature == 0)
    verdict = rule(tree, logits)
    assert verdict.path == tiny.path_to(parents, verdict.path[-1])
    assert len(verdict.passes) == tree.size
    assert all(verdict.passes[node] for node in verdict.path)
    assert 0 <= verdict.bonus < VOCABULARY
    assert verdict.accepted in (None, tree.tokens[verdict.path].tolist())
    assert all(len(own) == tree.size for own in (verdict.threshold, verdict.reasons) if own)
    assert verdict.failure
    if temperature == 0:  # each is greedy matching
        assert verdict.passes == slow_greedy(tree, logits)
        assert verdict.path == best_path(tree, verdict.passes, [0.0] * tree.size)
        assert verdict.bonus == int(logits[verdict.path[-1]].argmax())
        assert torch.equal(rule.choose(logits), logits.argmax(dim=-1))


@settings(max_examples=60)
@given(parents=tiny.parent_lists(14), seed=st.integers(0, 10**6))
def test_sampled_matching_follows_one_draw_a_node(parents, seed):
    tree, logits = random_case(parents, seed)
    verdict = rule_for(seed=seed, acceptance="match", temperature=1.0)(tree, logits)
    draws = rule_for(seed=seed, acceptance="match", temperature=1.0).choose(logits).tolist()
    passes = [parent < 0 or int(tree.tokens[node]) == draws[parent] for node, parent in enumerate(parents)]
    assert len(draws) == tree.size
    assert verdict.passes == passes
    assert verdict.path == best_path(tree, passes, [0.0] * tree.size)
    assert verdict.bonus == draws[verdict.path[-1]]


@settings(max_examples=80)
@given(
    parents=tiny.parent_lists(14),
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    epsilon=st.sampled_from([0.01, 0.09, 0.3]),
    delta=st.sampled_from([0.05, 0.3, 0.9]),
)
def test_typical_against_the_slow_version(parents, seed, temperature, epsilon, delta):
    tree, logits = random_case(parents, seed)
    chosen = {"temperature": temperature, "epsilon": epsilon, "delta": delta}
    verdict = rule_for(acceptance="typical", **chosen)(tree, logits)

    rows = [distribution(row, temperature) for row in logits.tolist()]
    passes, logp = [True], [0.0]
    for node in range(1, tree.size):
        p = rows[parents[node]][int(tree.tokens[node])]
        entropy = slow_entropy(rows[parents[node]])
        bar = min(epsilon, delta * math.exp(-entropy))
        passes.append(p > bar)
        logp.append(math.log(p))
        assert verdict.statistics.p[node] == pytest.approx(p, rel=1e-4)
        assert verdict.statistics.entropy[node] == pytest.approx(entropy, abs=1e-4)
        assert verdict.threshold[node] == pytest.approx(bar, rel=1e-3)
    assert verdict.passes == passes
    assert verdict.path == best_path(tree, passes, logp)
    assert verdict.bonus == int(logits[verdict.path[-1]].argmax())


def test_typical_comparison_is_strict():
    """p = 1/2 exactly against ε = 1/2: not accepted; against a hair less: accepted."""
    tree = tiny.token_tree([-1, 0], [1, 0])
    logits = torch.tensor([[1.0, 1.0, -math.inf], [0.0, 0.0, 0.0]])
    # With δ = 1 the other bar, exp(−H) of two equal tokens, is a hair above 1/2: ε decides.
    assert rule_for(acceptance="typical", temperature=1.0, epsilon=0.5, delta=1.0)(tree, logits).path == [0]
    assert rule_for(acceptance="typical", temperature=1.0, epsilon=0.49, delta=1.0)(tree, logits).path == [
        0,
        1,
    ]


def test_the_sum_over_the_whole_path_decides_not_its_last_node():
    tree = tiny.token_tree([-1, 0, 0, 1, 2], [0, 1, 2, 3, 4])
    passes = [True] * 5
    p = [math.nan, 0.6, 0.2, 0.3, 0.5]  # 0.6 · 0.3 = 0.18 beats 0.2 · 0.5 = 0.10
    assert longest_path(tree, passes, p) == [0, 1, 3]


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ({"epsilon": 0.2, "delta": 1.0}, [0.625, 0.375, 0, 0]),  # e^−H = 0.32: ε is the bar
        ({"epsilon": 0.2, "delta": 0.3}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),  # δ·e^−H = 0.096
        ({"epsilon": 1.0, "delta": 1.0}, [1, 0, 0, 0]),
        ({"epsilon": 0.01, "delta": 0.01}, [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_a_sampled_root_is_a_draw_from_the_tokens_that_reach_the_bar(chosen, wanted):
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(4000, -1)
    rule = rule_for(acceptance="typical", temperature=1.0, root="sample", **chosen)
    counts = torch.bincount(rule.choose(logits), minlength=4)
    assert [count == 0 for count in counts.tolist()] == [share == 0 for share in wanted]
    # Four standard deviations of 4000 draws are 0.032 at most.
    assert (counts / 4000).tolist() == pytest.approx(wanted, abs=0.035)


def test_where_no_token_reaches_the_bar_the_likeliest_is_the_root():
    """The guard in the entropy puts e^−H of equal tokens a hair above each of them."""
    logits = torch.zeros(200, 16)
    rule = rule_for(acceptance="typical", temperature=1.0, root="sample", epsilon=1.0, delta=1.0)
    assert rule.choose(logits).max() < 16


# --- Greedy acceptance is one rule wherever it is written: the same nodes, also where tokens come twice.
# The page's is in ``tests/browser/test_unpack.py``.


@given(case=cases())
def test_the_engine_accepts_the_deepest_node_and_the_first_of_several(case):
    verdict = matched(tiny.token_tree(case.parents, case.tokens), case.tokens, case.choices)
    assert verdict.path == case.path
    assert verdict.bonus == case.choices[case.path[-1]]


@given(case=cases())
def test_custom_generate_accepts_the_same_nodes(case):
    tree, logits = tiny.token_tree(case.parents, case.tokens), F.one_hot(torch.tensor(case.choices), V)
    rule = ProcessedMatch(LogitsProcessorList(), torch.tensor([[0]]), sample=False)
    verdict = rule(tree, logits.float())
    assert verdict.path == case.path
    assert verdict.bonus == case.choices[case.path[-1]]
    assert all(verdict.passes[node] for node in case.path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("vocabulary", [3, 40, 5000])
def test_the_greedy_choice_is_the_first_of_the_largest_or_of_what_is_no_number(dtype, vocabulary):
    for seed in range(20):
        row = torch.randint(0, 3, (vocabulary,), generator=torch.Generator().manual_seed(seed)).to(dtype)
        assert int(largest(row)) == row.tolist().index(max(row.tolist()))
        row[[vocabulary - 1, vocabulary // 2]] = torch.nan
        assert int(largest(row)) == vocabulary // 2


@pytest.fixture(scope="module")
def target(library):
    """One of few tokens, so that it often agrees."""
    config = tiny.tiny_config(2, vocab_size=V, hidden_size=64, head_dim=16)
    return tiny.target_in_c(tiny.build_model(config), library)


@given(case=cases())
@torch.inference_mode()
def test_the_step_in_c_accepts_the_same_nodes(target, case):
    tree = tiny.token_tree(case.parents, case.tokens)
    made = tiny.greedy_step(target.forward, target.new_cache(64), tree)
    assert made.path == case._replace(choices=made.choices).path
