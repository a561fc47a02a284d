"""Rows that a draft sees: chosen as the paper says, followed as the text grows, bounded in memory."""

from __future__ import annotations

from itertools import pairwise

import pytest
import tiny
import torch

from medusa_core.errors import MedusaError
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.model.features import Features
from medusa_core.model.partial_cache import PartialCache, most_important
from medusa_core.model.target import Target

QUERIES = Features(queries=True)
BUDGET, SINKS = 12, 3


@pytest.fixture(scope="module")
def target():
    target = Target(tiny.build_model(tiny.tiny_config(kv_heads=2)))
    return target


def slow_choice(queries, keys, count, sinks):
    """Row by row and head by head, as a set for each key-value head."""
    chosen = []
    group = len(queries) // len(keys)
    for head, rows in enumerate(keys):
        scores = {
            row: sum(float(queries[head * group + one] @ key) for one in range(group))
            for row, key in enumerate(rows) if row >= sinks
        }  # fmt: skip
        best = sorted(scores, key=lambda row: -scores[row])[: count - sinks]
        chosen.append({*range(sinks), *best})
    return chosen


@pytest.mark.parametrize("sinks", [0, 4])
def test_the_rows_are_those_of_the_largest_products(sinks):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(6, 8, generator=generator), torch.randn(3, 40, 8, generator=generator)
    rows = most_important(queries, keys, 10, sinks)
    assert [set(row) for row in rows.tolist()] == slow_choice(queries, keys, 10, sinks)


def test_rows_out_of_a_sliding_layer_s_sight_come_last():
    generator = torch.Generator().manual_seed(1)
    queries, keys = torch.randn(2, 8, generator=generator), torch.randn(1, 40, 8, generator=generator)
    assert min(most_important(queries, keys, 10, 0, window=12)[0].tolist()) >= 40 - 12


def read(target, cache, tokens):
    """Commit tokens; the last one's queries."""
    return target.prefill(tokens, cache, QUERIES)[1][-1]


def held(partial, full, layer=0):
    """Which rows of the text each head of a layer has, by their keys."""
    rows = full.tree_layers[layer].keys[0]
    return [
        {int((text[: full.length] - key).abs().sum(dim=1).argmin()) for key in keys}
        for keys, text in zip(partial.tree_layers[layer].keys[0, :, : partial.length], rows, strict=True)
    ]


@pytest.mark.parametrize("forward", ["c", "transformers"])
def test_new_rows_replace_the_least_important_until_they_no_longer_fit(target, forward, library):
    if forward == "c":
        target = Target(target.model)
        assert choose_forward(target, library=library).native
    text = tiny.random_tokens(60, seed=3)
    full = target.new_cache(80)
    partial = PartialCache(target, BUDGET, SINKS)
    queries = read(target, full, text[:BUDGET])
    assert partial.over(full, queries) is full  # it fits
    assert partial.nbytes == 0
    selected, bytes_seen, ranked = 0, set(), []
    for length in range(BUDGET + 1, 60):
        queries = read(target, full, text[length - 1 : length])
        over = partial.over(full, queries)
        if selected == 0 or length - selected > BUDGET - SINKS:
            selected = length
            first = queries.view(2, 4, -1)[0]
            ranked = most_important(first, full.tree_layers[0].keys[0, :, :length], BUDGET, SINKS).tolist()
        new = length - selected
        assert held(over, full) == [{*row[: BUDGET - new], *range(selected, length)} for row in ranked]
        assert (over.length, over.position) == (BUDGET, length)
        said = {row for start, end in partial.ranges for row in range(start, end)}
        assert said == set().union(*held(over, full, 0), *held(over, full, 1))
        assert all(end < start for (_, end), (start, _) in pairwise(partial.ranges))
        bytes_seen.add(partial.nbytes)
    assert len(bytes_seen) == 1


def test_rows_that_are_no_longer_the_text_s_are_chosen_anew(target):
    text = tiny.random_tokens(30, seed=3)
    full, partial = target.new_cache(40), PartialCache(target, BUDGET, SINKS)
    partial.over(full, read(target, full, text))
    full.truncate(20)
    partial.forget(20)
    other = read(target, full, [5, 7])
    ours = held(partial.over(full, other), full)
    fresh = held(PartialCache(target, BUDGET, SINKS).over(full, other), full)
    assert ours == fresh


def test_sinks_that_leave_no_choice_are_refused(target):
    with pytest.raises(MedusaError, match=r"a draft sees 12 rows and the first 12 .*: lower --draft-sinks"):
        PartialCache(target, 12, 12)
