"""Tree search against brute force on small cases; cartesian and random trees beside the optimised ones."""

from __future__ import annotations

import itertools
import json
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.errors import MedusaError
from medusa_core.trees.baselines import best_cartesian, best_cartesian_trees, cartesian_trees, random_choices
from medusa_core.trees.search import (
    assumed_accuracies,
    expected_lengths,
    node_value,
    read_accuracies,
    search_tree,
)
from medusa_core.trees.tree import TOP_K, Topology

TWO_HEADS = [[0.6, 0.2, 0.1], [0.4, 0.3, 0.05]]


@pytest.mark.sample
@pytest.mark.parametrize("heads", [1, 3, 5])
@pytest.mark.parametrize("nodes", [1, 8, 33, 63])
def test_assumed_accuracies_give_a_whole_tree_of_any_size(nodes, heads):
    tree = Topology.from_choices(search_tree(assumed_accuracies(heads), nodes).choices)
    tree.check(heads)
    assert tree.size == 1 + (min(nodes, TOP_K) if heads == 1 else nodes)


def test_ties_go_to_the_shallower_node_and_then_to_smaller_ranks():
    assert search_tree([[0.5, 0.5], [1.0, 0.5]], 3).choices == [(0,), (1,), (0, 0)]


def test_a_budget_beyond_the_whole_tree_gives_the_whole_tree():
    assert len(search_tree(TWO_HEADS, 100).choices) == 3 + 9


@pytest.mark.parametrize(
    ("accuracies", "nodes", "words"),
    [
        ([], 4, "empty"),
        ([[0.5], []], 4, "empty"),
        ([[50.0]], 4, "outside 0 to 1"),
        ([[0.1, 0.2]], 4, "sort its accuracies"),
        ([[0.5]], 0, "must be 1 to 255"),
    ],
)
def test_bad_input_is_named(accuracies, nodes, words):
    with pytest.raises(MedusaError, match=words):
        search_tree(accuracies, nodes)


def test_accuracies_are_read_as_a_list_or_under_their_name(tmp_path):
    file = tmp_path / "a.json"
    for content in (TWO_HEADS, {"accuracies": TWO_HEADS}):
        file.write_text(json.dumps(content), encoding="utf-8")
        assert read_accuracies(file) == TWO_HEADS
    file.write_text('{"other": 1}', encoding="utf-8")
    with pytest.raises(MedusaError, match="cannot read accuracies"):
        read_accuracies(file)


@settings(max_examples=20)
@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=3), min_size=3, max_size=3),
    nodes=st.integers(1, 4),
    max_depth=st.integers(1, 3),
)
def test_three_heads_of_different_width_and_a_depth_limit_against_brute_force(rows, nodes, max_depth):
    accuracies = [sorted(row, reverse=True) for row in rows]
    everything = [
        choice
        for depth in range(1, max_depth + 1)
        for choice in itertools.product(*(range(len(row)) for row in accuracies[:depth]))
    ]
    best = max(
        sum(node_value(accuracies, c) for c in chosen)
        for chosen in itertools.combinations(everything, min(nodes, len(everything)))
        if all(len(c) == 1 or c[:-1] in chosen for c in chosen)
    )
    found = search_tree(accuracies, nodes, max_depth)
    assert found.expected_length == pytest.approx(1 + best)
    assert len(found.choices) == min(nodes, len(everything))
    Topology.from_choices(found.choices)  # connected and without duplicates


def test_every_start_of_a_search_is_the_search_for_that_size():
    accuracies = assumed_accuracies(4)
    whole = search_tree(accuracies, 30)
    lengths = expected_lengths(accuracies, whole.choices)
    assert lengths[0] == 1.0
    for nodes in range(1, 31):
        part = search_tree(accuracies, nodes)
        assert part.choices == whole.choices[:nodes]
        assert part.expected_length == pytest.approx(lengths[nodes])


@pytest.mark.parametrize("nodes", [1, 7, 20])
def test_the_estimate_agrees_with_counting_where_heads_are_right_independently(nodes):
    accuracies = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.05], [0.3, 0.2, 0.1]]
    found = search_tree(accuracies, nodes)
    tree = set(found.choices)
    draw = random.Random(nodes)
    steps = 40_000
    kept = []
    for _ in range(steps):
        # The rank at which each head has the right token, or none of them.
        right = [draw.choices([0, 1, 2, None], [*row, 1 - sum(row)])[0] for row in accuracies]
        depth = 0
        while depth < 3 and right[depth] is not None and tuple(right[: depth + 1]) in tree:
            depth += 1
        kept.append(1 + depth)
    error = statistics.stdev(kept) / steps**0.5
    assert statistics.mean(kept) == pytest.approx(found.expected_length, abs=4 * error)


def test_a_depth_limit_below_one_is_named():
    with pytest.raises(MedusaError, match="must be at least 1"):
        search_tree(TWO_HEADS, 3, max_depth=0)


# --- Cartesian and random trees: right sizes and values, the best one found, and none above the optimised.


THREE = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.05], [0.3, 0.2, 0.1]]


def test_every_cartesian_tree_that_fits_is_there_once_with_its_size_and_value():
    found = list(cartesian_trees(THREE, 12))
    expected = set()
    for depth in (1, 2, 3):
        for widths in itertools.product((1, 2, 3), repeat=depth):
            if 1 + sum(itertools.accumulate(widths, lambda a, b: a * b)) <= 12:
                expected.add(widths)
    assert {tree.widths for tree in found} == expected
    assert len(found) == len(expected)
    for tree in found:
        topology = tree.topology()
        assert topology.size == tree.nodes
        assert tree.expected_length == pytest.approx(expected_lengths(THREE, topology.choices)[-1])


@settings(max_examples=25)
@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=3),
    nodes=st.integers(2, 20),
)
def test_the_best_cartesian_tree_against_trying_all_and_against_the_optimised_tree(rows, nodes):
    accuracies = [sorted(row, reverse=True) for row in rows]
    best = best_cartesian(accuracies, nodes)
    assert best.nodes <= nodes
    assert best.expected_length == max(t.expected_length for t in cartesian_trees(accuracies, nodes))
    assert search_tree(accuracies, nodes - 1).expected_length >= best.expected_length - 1e-9


def test_the_curve_rises_and_ties_go_to_the_smaller_tree():
    curve = best_cartesian_trees(assumed_accuracies(5), 64)
    for before, after in itertools.pairwise(curve):
        assert before.nodes < after.nodes
        assert before.expected_length < after.expected_length
    assert [tree.widths for tree in best_cartesian_trees([[0.5, 0.0], [0.0, 0.0]], 8)] == [(1,)]


def test_many_heads_are_no_burden():
    assert best_cartesian(assumed_accuracies(16), 64).nodes <= 64


def test_too_few_nodes_are_named():
    with pytest.raises(MedusaError, match="allow 2 or more"):
        best_cartesian(THREE, 1)


@pytest.mark.parametrize("seed", range(5))
def test_every_start_of_a_random_tree_is_a_tree(seed):
    choices = random_choices(THREE, 20, seed)
    for size in range(1, 20):
        assert Topology.from_choices(choices[:size]).size == size + 1
    assert choices == random_choices(THREE, 20, seed)
    best = search_tree(THREE, 19).choices
    pairs = zip(expected_lengths(THREE, choices), expected_lengths(THREE, best), strict=True)
    assert all(random <= optimised + 1e-9 for random, optimised in pairs)


def test_a_random_tree_reaches_every_node_and_then_ends():
    assert len(random_choices(THREE, 1000, 0)) == 3 + 9 + 27


def test_every_node_is_as_likely_as_the_others_that_could_be_added():
    firsts = [random_choices(THREE, 2, seed)[0] for seed in range(3000)]
    for rank in range(3):
        assert firsts.count((rank,)) == pytest.approx(1000, abs=120)
