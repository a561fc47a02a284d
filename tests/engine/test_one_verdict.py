"""Greedy acceptance is one rule wherever it is written: the same nodes, also where tokens come twice.

The page's is in ``tests/browser/test_one_verdict_in_view.py``.
"""

from __future__ import annotations

import pytest
import tiny
import torch
from hypothesis import given
from one_verdict import V, cases
from torch.nn import functional as F
from transformers import LogitsProcessorList

from medusa_core.acceptance.match import matched
from medusa_core.acceptance.sampling import largest
from medusa_core.custom_generate.rules import ProcessedMatch
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.model.target import Target


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
    made = Target(tiny.build_model(tiny.tiny_config(2, vocab_size=V, hidden_size=64, head_dim=16)))
    assert choose_forward(made, library=library).native
    return made


@given(case=cases())
@torch.inference_mode()
def test_the_step_in_c_accepts_the_same_nodes(target, case):
    tree = tiny.token_tree(case.parents, case.tokens)
    made = tiny.greedy_step(target.forward, target.new_cache(64), tree)
    assert made.path == case._replace(choices=made.choices).path
