"""Cartesian and random trees: right sizes and values, the best one found, and none above the optimised."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.errors import MedusaError
from medusa_core.trees.baselines import (
    best_cartesian,
    best_cartesian_trees,
    cartesian_trees,
    random_choices,
)
from medusa_core.trees.search import assumed_accuracies, expected_lengths, search_tree
from medusa_core.trees.tree import Topology

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
