"""The caches of the forward in C: rows that move, caches that grow, and rows that each head takes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.target.lean_cache import LeanCache
from medusa_core.target.native.cache import TileCache, native_cache
from medusa_core.target.native.library import Library


@given(
    start=st.integers(0, 70),
    path=st.sets(st.integers(1, 40), max_size=8).map(lambda rows: [0, *sorted(rows)]),
    tiles=st.booleans(),
)
def test_accepted_rows_are_moved_as_the_cache_in_torch_moves_them(library, start, path, tiles):
    lean = LeanCache(2, 2, 32, 112, torch.device("cpu"))
    cache = native_cache(2, 2, 32, 112, Library(library.functions, tiles=tiles))
    keys, values = (torch.randn(2, 2, 112, 32).bfloat16() for _ in range(2))
    for one in (lean, cache):
        write(one, keys, values)
        one.commit(range(start))
        one.commit(path)
        assert one.length == start + len(path)
    for mine, theirs in zip(numbers(cache), numbers(lean), strict=True):
        assert mine[:, :, : cache.length].float().equal(theirs[:, :, : cache.length])


@given(before=st.integers(1, 70), after=st.integers(1, 200))
def test_a_cache_for_amx_keeps_its_rows_when_it_grows(library, before, after):
    cache = native_cache(2, 2, 32, before, Library(library.functions, tiles=True))
    keys, values = (torch.randn(2, 2, before, 32).bfloat16() for _ in range(2))
    write(cache, keys, values)
    cache.commit(range(before))
    cache.reserve(after)
    assert cache.rows >= cache.slots == max(before, after)
    assert cache.nbytes == 2 * 2 * 2 * cache.rows * 32 * 2
    assert all(
        torch.equal(one[:, :, :before], own) for one, own in zip(numbers(cache), (keys, values), strict=True)
    )


@given(
    rows=st.lists(st.integers(0, 69), min_size=2, max_size=20).map(lambda rows: rows[: len(rows) // 2 * 2]),
    start=st.integers(0, 40),
)
def test_each_head_takes_rows_of_its_own_from_another_cache(library, rows, start):
    other, cache = (native_cache(1, 2, 32, 70, Library(library.functions, tiles=True)) for _ in range(2))
    keys, values = (torch.randn(1, 2, 70, 32).bfloat16() for _ in range(2))
    write(other, keys, values)
    taken = torch.tensor(rows).view(2, -1)
    cache.tree_layers[0].take(other.tree_layers[0], taken, start)
    for one, own in zip(numbers(cache), (keys, values), strict=True):
        for head in range(2):
            assert one[0, head, start : start + taken.shape[1]].equal(own[0, head, taken[head]])


def numbers(cache):
    """Keys and values of all slots [L, G, S, D], whichever way they lie."""
    if isinstance(cache, TileCache):
        return cache.keys, cache.values.transpose(3, 4).flatten(2, 3)
    return cache.keys.transpose(2, 3), cache.values[..., : cache.keys.shape[2]]


def write(cache, keys, values):
    count = keys.shape[2]
    if isinstance(cache, TileCache):
        cache.keys[:, :, :count] = keys
        own = cache.values.transpose(3, 4)  # [L, G, S / 32, 32, D]
        for row in range(count):
            own[:, :, row // 32, row % 32] = values[:, :, row]
    else:
        for own, given_ones in zip(numbers(cache), (keys, values), strict=True):
            own[:, :, :count] = given_ones
