"""Queries and what the final norm reads: the same from every forward, and nothing stays on the model."""

from __future__ import annotations

import threading

import pytest
import tiny
import torch
from tokenswift_heads import hidden_before_norm

from medusa_core.errors import MedusaError
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.model.features import BEFORE_NORM, Features
from medusa_core.model.recording import states_before_norm
from medusa_core.model.target import Target

BOTH = Features((BEFORE_NORM, -1), queries=True)
TEXT, MORE = tiny.random_tokens(9, seed=1), tiny.random_tokens(5, seed=2)
PARENTS = [-1, 0, 0, 1]


def outputs(target):
    """Features of a prompt's last row, of a tree's rows, and of the trees of a batch."""
    caches = [target.new_cache(20), target.new_cache(20)]
    tree = tiny.token_tree(PARENTS, [4, 5, 6, 7])
    read = [target.prefill(text, cache, BOTH)[1] for text, cache in zip((TEXT, MORE), caches, strict=True)]
    alone = [target.verify(tree, cache, BOTH)[1] for cache in caches]
    together = [features for _, features in target.verify_all([tree, tree], caches, BOTH)]
    return [*read, *alone, *together]


@pytest.fixture(scope="module")
def model():
    return tiny.build_model(tiny.tiny_config(kv_heads=2))


def test_both_forwards_give_the_same(model, library):
    target = Target(model)
    by_transformers = outputs(target)
    assert choose_forward(target, library=library).native
    in_c = outputs(target)
    for ours, wanted in zip(in_c, by_transformers, strict=True):
        assert ours.shape[-1] == 2 * 32 + 2 * 32  # two states of 32, two layers of four heads of 8
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


def test_the_state_and_the_queries_are_the_model_s(model):
    """The state by the last layer itself, queries of the first token, which nothing turns, by the weights."""
    target = Target(model)
    _, features = target.read(TEXT, BOTH)
    torch.testing.assert_close(features[:, :32], hidden_before_norm(model, torch.tensor([TEXT]))[0])
    first = model.model.layers[0]
    embedded = model.get_input_embeddings().weight[TEXT[0]]
    torch.testing.assert_close(features[0, 64:96], first.self_attn.q_proj(first.input_layernorm(embedded)))


def test_nothing_stays_on_the_model_and_another_thread_s_forward_is_not_recorded(model):
    tokens = torch.tensor([TEXT])
    with states_before_norm(model) as states:
        other = threading.Thread(target=lambda: model(tokens))
        other.start()
        other.join()
        assert states == []
        model(tokens)
        assert len(states) == 1
    model(tokens)
    assert len(states) == 1
    assert not model.model.norm._forward_pre_hooks


def test_a_model_whose_queries_cannot_be_read_is_named():
    target = Target(tiny.build_model(tiny.tiny_config(), attention="eager"))
    with pytest.raises(MedusaError, match=r"queries of llama cannot be read, .* use another --method"):
        target.verify(tiny.token_tree([-1], [3]), target.new_cache(4), BOTH)
