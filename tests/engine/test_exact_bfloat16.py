"""In bfloat16 greedy Medusa gives plain decoding's tokens, where the forward in C runs."""

from __future__ import annotations

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.evaluation.prompts import shipped_prompts
from medusa_core.loading.load import load_engine
from medusa_core.model.features import LAST_HIDDEN

# Trees narrower and wider than the rows for which kernels change, the widest of which has 85 nodes.
TREES = ("default", "cartesian-2x2x2x2x1", "cartesian-4x3x2", "cartesian-4x4x4")


@pytest.fixture(scope="module")
def embedded():
    engine = load_engine(LoadConfig(dtype="bfloat16", device="cpu"))
    if not engine.target.choice.exact:
        pytest.skip(engine.info.forward)
    return engine


def tokens(engine, prompt, **settings):
    config = GenerationConfig.of(max_new_tokens=100, ignore_eos=True, **settings)
    return tiny.emitted(engine.stream(prompt, config))


@pytest.mark.parametrize("number", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_medusa_equals_plain_decoding(embedded, number):
    """Behind a prompt of 90 tokens."""
    prompt = shipped_prompts(embedded)[number]
    prompt = (prompt * 60)[:90]
    plain = tokens(embedded, prompt, method="none")
    assert {tree: tokens(embedded, prompt, tree=tree) == plain for tree in TREES} == dict.fromkeys(
        TREES, True
    )


@pytest.mark.slow
def test_medusa_equals_plain_decoding_on_every_shipped_prompt(embedded):
    for prompt in shipped_prompts(embedded):
        plain = tokens(embedded, prompt, method="none")
        assert all(tokens(embedded, prompt, tree=tree) == plain for tree in TREES)


def test_a_node_gets_the_bits_of_its_token_alone(embedded):
    """The same of hidden states and logits, where equal tokens could hide a difference."""
    target, prompt = embedded.target, tiny.random_tokens(126, 1, vocabulary=4000)
    parents = [-1, *((node - 1) // 2 for node in range(1, 47))]
    drafted = tiny.random_tokens(len(parents), 2, vocabulary=4000)
    with torch.inference_mode():
        cache = target.new_cache(200)
        target.prefill(prompt, cache)
        logits, hidden = target.verify(tiny.token_tree(parents, drafted), cache, LAST_HIDDEN)
        for leaf in (46, 30, 20):
            for node in tiny.path_to(parents, leaf):
                alone, state = target.verify(tiny.token_tree([-1], [drafted[node]]), cache, LAST_HIDDEN)
                assert torch.equal(alone[0], logits[node])
                assert torch.equal(state[0], hidden[node])
                cache.commit([0])
            cache.truncate(len(prompt))
