"""The cache: keeping a path of a tree equals having read only that path; room and its errors."""

from __future__ import annotations

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.errors import MedusaError
from medusa_core.model.kv_cache import TreeCache, TreeLayer
from medusa_core.model.target import Target

SLOTS = 64


def next_logits(target, cache, token):
    """Logits after one more token: reads every committed row."""
    logits, _ = target.verify(tiny.token_tree([-1], [token]), cache)
    return logits[0]


@settings(max_examples=25)
@given(parents=tiny.parent_lists(), seed=st.integers(0, 10**6), data=st.data())
def test_commit_equals_a_fresh_prefill_of_the_accepted_tokens(attention_variant, parents, seed, data):
    """Two trees in a row, so that the second stands on rows that the first commit moved."""
    target = Target(attention_variant)
    prompt = tiny.random_tokens(5, seed)
    cache = target.new_cache(SLOTS)
    target.prefill(prompt, cache)
    read = list(prompt)
    for turn in range(2):
        tokens = tiny.random_tokens(len(parents), seed + 1 + turn)
        path = tiny.path_to(parents, data.draw(st.integers(0, len(parents) - 1)))
        target.verify(tiny.token_tree(parents, tokens), cache)
        cache.commit(path)
        read += [tokens[node] for node in path]

    fresh = target.new_cache(SLOTS)
    target.prefill(read, fresh)
    assert cache.length == fresh.length == len(read)
    for layer, wanted in zip(cache.layers, fresh.layers, strict=True):
        torch.testing.assert_close(
            layer.keys[:, :, : len(read)], wanted.keys[:, :, : len(read)], atol=1e-5, rtol=0
        )
        torch.testing.assert_close(
            layer.values[:, :, : len(read)], wanted.values[:, :, : len(read)], atol=1e-5, rtol=0
        )
    torch.testing.assert_close(
        next_logits(target, cache, 7), next_logits(target, fresh, 7), atol=1e-5, rtol=0
    )


def filled(rows, committed=0, layers=2, slots=8):
    """A cache whose row r holds the number r everywhere, so that moved rows can be read off."""
    cache = TreeCache(layers, slots)
    for count in (committed, rows):
        states = (
            torch.arange(cache.length, cache.length + count).float()[None, None, :, None].expand(1, 2, -1, 3)
        )
        for layer in range(layers):
            cache.update(states, -states, layer)
        if count == committed:
            cache.commit(range(count))
    return cache


def rows_of(cache):
    """The row numbers that lie in the committed slots of each layer, after checking that values agree."""
    for layer in cache.layers:
        assert torch.equal(layer.values, -layer.keys)
        assert torch.equal(layer.keys, layer.keys[:, :1, :, :1].expand_as(layer.keys))
    return [layer.keys[0, 0, : cache.length, 0].int().tolist() for layer in cache.layers]


def test_commit_gathers_before_it_scatters():
    """Source and target rows overlap: 2 → 1, 4 → 2, 5 → 3."""
    cache = filled(rows=6, committed=2)
    cache.commit([0, 2, 4, 5])
    assert rows_of(cache) == [[0, 1, 2, 4, 6, 7]] * 2


def test_memory_is_allocated_once():
    cache = filled(rows=4, committed=2)
    places = [layer.keys.data_ptr() for layer in cache.layers]
    cache.commit([0, 3])
    cache.update(torch.ones(1, 2, 4, 3), torch.ones(1, 2, 4, 3), 0)
    assert [layer.keys.data_ptr() for layer in cache.layers] == places
    assert cache.layers[0].keys.shape == (1, 2, 8, 3)


def test_keys_and_values_keep_their_own_dtypes():
    layer = TreeLayer(8)
    keys = torch.ones(1, 2, 1, 3)
    layer.lazy_initialization(keys, keys.bfloat16())
    assert (layer.keys.dtype, layer.values.dtype) == (torch.float32, torch.bfloat16)


def test_room_shrinks_with_commits_not_with_writes():
    cache = filled(rows=4, committed=2)
    assert (cache.length, cache.room, cache.get_seq_length()) == (2, 6, 2)
    cache.commit([0])
    assert (cache.length, cache.room, cache.get_seq_length()) == (3, 5, 3)
    cache.require(5)
    with pytest.raises(MedusaError, match="6 rows do not fit: 3 of 8 cache slots are used"):
        cache.require(6)


def test_a_forward_that_does_not_fit_is_refused_before_the_model_runs(model):
    target = Target(model)
    cache = target.new_cache(6)
    target.prefill([1, 2, 3, 4], cache)
    with pytest.raises(MedusaError, match="3 rows do not fit: 4 of 6"):
        target.verify(tiny.token_tree([-1, 0, 0], [1, 2, 3]), cache)


def test_reset_forgets_every_row():
    cache = filled(rows=4, committed=2)
    cache.reset()
    assert (cache.length, cache.room, cache.get_seq_length()) == (0, 8, 0)


def test_a_layer_that_is_never_written_does_not_stop_a_commit():
    """Layers that read another layer's keys have none of their own."""
    cache = TreeCache(2, 8)
    states = torch.arange(4).float()[None, None, :, None].expand(1, 2, -1, 3)
    cache.update(states, -states, 0)
    cache.commit([0, 2])
    assert [layer.length for layer in cache.layers] == [2, 2]
    assert cache.layers[0].keys[0, 0, :2, 0].tolist() == [0, 2]
