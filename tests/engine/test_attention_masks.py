"""Masks of each kind of layer, beside a slow version that asks for every pair of rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.errors import MedusaError
from medusa_core.model.masks import FULL, SLIDING, LayerMasks, mask_for


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
    parents=tiny.parent_lists(10),
    length=st.integers(0, 12),
    window=st.one_of(st.none(), st.integers(1, 20)),
)
def test_every_node_sees_what_the_slow_version_says(parents, length, window):
    tree = tiny.token_tree(parents, [0] * len(parents))
    masks = LayerMasks.of(config(layer_types=[SLIDING, FULL], sliding_window=window))
    built = masks.build(tree.mask, torch.tensor(tree.depths), length, torch.float32)
    for kind, limit in ((FULL, 10**6), (SLIDING, window or 10**6)):
        wanted = [
            [sees(parents, length, limit, node, slot) for slot in range(length + len(parents))]
            for node in range(len(parents))
        ]
        assert built[kind][0, 0].tolist() == wanted


def test_a_window_counts_positions_not_slots():
    """Node 4 is a grandchild of the root four slots behind it, but only two positions."""
    parents = [-1, 0, 0, 0, 3]
    tree = tiny.token_tree(parents, [0] * 5)
    masks = LayerMasks.of(config(sliding_window=3))
    mask = masks.build(tree.mask, torch.tensor(tree.depths), 2, torch.float32)
    assert mask[0, 0, 4].tolist() == [False, False, True, False, False, True, True]


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
    built = masks.build(torch.eye(2, dtype=torch.bool), torch.zeros(2, dtype=torch.long), 3, torch.float32)
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


def test_other_layers_and_kernels_are_refused():
    with pytest.raises(MedusaError, match="tiny has layers of kind conv, linear_attention, whose state"):
        LayerMasks.of(config(layer_types=[FULL, "linear_attention", "conv"]))
    with pytest.raises(MedusaError, match="attention 'flash_attention_3' takes no tree mask: load the model"):
        LayerMasks.of(config(_attn_implementation="flash_attention_3"))
