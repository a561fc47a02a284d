"""What the target reads: masks of each kind of layer, and queries and states from every forward."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenswift_heads import hidden_before_norm

from medusa_core.errors import MedusaError
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.model.features import BEFORE_NORM, Features
from medusa_core.model.masks import FULL, SLIDING, LayerMasks, mask_for
from medusa_core.model.recording import states_before_norm
from medusa_core.model.target import Target


def config(**settings):
    """What a decoder's config says about its attention, of a class that knows what it says."""
    said = {"model_type": "tiny", "_attn_implementation": "sdpa"} | settings
    return type("TinyConfig", (SimpleNamespace,), dict.fromkeys(said))(**said)


def sees(parents, length, window, node, slot):
    """Slow version: whether a node sees a slot, by positions and by walking up the tree."""
    path = tiny.path_to(parents, node)
    position = length + len(path) - 1
    if slot < length:
        return position - slot < window
    if slot - length not in path:
        return False
    return position - (length + path.index(slot - length)) < window


@given(
    parents=tiny.parent_lists(10), length=st.integers(0, 12), window=st.one_of(st.none(), st.integers(1, 20))
)
def test_every_node_sees_what_the_slow_version_says(parents, length, window):
    tree = tiny.token_tree(parents, [0] * len(parents))
    masks = LayerMasks.of(config(layer_types=[SLIDING, FULL], sliding_window=window))
    built = masks.build([(tree.mask, torch.tensor(tree.depths), length)], torch.float32)
    for kind, limit in ((FULL, 10**6), (SLIDING, window or 10**6)):
        wanted = [
            [sees(parents, length, limit, node, slot) for slot in range(length + len(parents))]
            for node in range(len(parents))
        ]
        assert built[kind][0, 0].tolist() == wanted


@pytest.mark.parametrize(
    ("settings", "kinds", "window"),
    [
        ({}, {FULL}, None),
        ({"sliding_window": 8}, {SLIDING}, 8),
        ({"sliding_window": 0}, {FULL}, None),
        ({"sliding_window": 8, "layer_types": [FULL, FULL]}, {FULL}, 8),
        ({"sliding_window": 8, "layer_types": [FULL, SLIDING]}, {FULL, SLIDING}, 8),
    ],
)
def test_kinds_of_layers(settings, kinds, window):
    masks = LayerMasks.of(config(**settings))
    assert (masks.kinds, masks.window) == (kinds, window)
    rows = torch.eye(2, dtype=torch.bool), torch.zeros(2, dtype=torch.long), 3
    built = masks.build([rows], torch.float32)
    if len(kinds) == 1:  # such models know no dictionary
        assert built.shape == (1, 1, 2, 5)
    else:
        assert set(built) == kinds


def test_mask_for_each_kernel():
    """Boolean for sdpa; for eager a number to add, since there True would silently add 1 to a score."""
    allowed = torch.tensor([[True, False], [True, True]])
    assert mask_for("sdpa", allowed, torch.float32) is allowed
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        additive = mask_for("eager", allowed, dtype)
        assert additive.dtype == dtype
        assert additive.tolist() == [[0.0, torch.finfo(dtype).min], [0.0, 0.0]]


# --- Queries and what the final norm reads: the same from every forward, and nothing stays on the model.


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
