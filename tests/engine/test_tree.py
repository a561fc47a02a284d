"""Trees: published ones, the worked example, files, every error, and the mask against a slow closure."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.drafters._head_trees import named_tree
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import MAX_NODES, Topology, ancestor_mask, load_tree, published_trees

# name: (nodes per depth, leaves), from the table of published facts
PUBLISHED = {
    "mc_sim_7b_63": ([10, 28, 23, 2], 42),
    "vicuna_7b_stage2": ([10, 23, 23, 7], 42),
    "vicuna_7b_stage1_ablation": ([10, 21, 25, 7], 42),
    "vicuna_7b_stage1": ([10, 32, 20, 1], 44),
    "vicuna_13b_stage2": ([10, 19, 25, 9], 42),
    "vicuna_13b_stage1": ([10, 29, 23, 1], 44),
    "vicuna_33b_stage2": ([10, 24, 24, 5], 43),
    "vicuna_33b_stage1": ([10, 34, 19], 46),
    "zephyr_stage2": ([10, 27, 23, 3], 44),
}


def ancestor_closure(parents):
    """The slow mask: for every pair, walk up from the row and look whether the column comes by."""
    return [
        [column in tiny.path_to(parents, row) for column in range(len(parents))]
        for row in range(len(parents))
    ]


def test_the_published_trees_are_the_nine_known_ones():
    assert set(published_trees()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tree_has_its_published_shape(name):
    tree = load_tree(name)
    per_depth, leaves = PUBLISHED[name]
    counted = Counter(tree.depths)
    assert tree.size == 63 + 1
    assert [counted[depth] for depth in range(1, len(per_depth) + 1)] == per_depth
    assert len(tree.paths()) == leaves
    assert max(tree.ranks) == 9
    assert tree.mask().tolist() == ancestor_closure(tree.parents)
    tree.check(heads=5)


def test_worked_example():
    """Two guesses of head 1, three of head 2; mask and positions as printed with the public code."""
    tree = Topology.from_choices([[0], [0, 0], [0, 1], [0, 2], [1], [1, 0], [1, 1], [1, 2]])
    assert tree.choices == ((0,), (1,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))
    assert tree.parents == [-1, 0, 0, 1, 1, 1, 2, 2, 2]
    assert tree.depths == [0, 1, 1, 2, 2, 2, 2, 2, 2]
    assert tree.ranks == [0, 0, 1, 0, 1, 2, 0, 1, 2]
    assert tree.paths() == [[0, 1, 3], [0, 1, 4], [0, 1, 5], [0, 2, 6], [0, 2, 7], [0, 2, 8]]
    assert tree == load_tree("cartesian-2x3")
    # The public code prints the paths from the last to the first, and where each node's token stands in a
    # list of the root and ten guesses of each head. With the root 1, guesses 2 and 3, then 4, 5 and 6:
    guesses = [1, *[2, 3, *[0] * 8], *[4, 5, 6, *[0] * 7]]
    at = zip(tree.depths, tree.ranks, strict=True)
    places = [10 * (depth - 1) + rank + 1 if depth else 0 for depth, rank in at]
    assert places == [0, 1, 2, 11, 12, 13, 11, 12, 13]
    tokens = [guesses[place] for place in places]
    assert tokens == [1, 2, 3, 4, 5, 6, 4, 5, 6]
    assert [[tokens[node] for node in path] for path in reversed(tree.paths())] == [
        [1, 3, 6], [1, 3, 5], [1, 3, 4], [1, 2, 6], [1, 2, 5], [1, 2, 4]
    ]  # fmt: skip
    assert [list(map(int, row)) for row in tree.mask()] == [
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 1, 0, 0],
        [1, 0, 1, 0, 0, 0, 0, 1, 0],
        [1, 0, 1, 0, 0, 0, 0, 0, 1],
    ]


@settings(max_examples=60)
@given(parents=tiny.parent_lists(24), data=st.data())
def test_random_trees_against_the_slow_versions(parents, data):
    choices = data.draw(st.permutations(tiny.choices_of(parents)))  # the order of a list must not matter
    tree = Topology.from_choices(choices)

    assert sorted(tree.choices) == sorted(choices)
    assert list(tree.choices) == sorted(tree.choices, key=lambda choice: (len(choice), choice))
    nodes = [(), *tree.choices]
    for node in range(1, tree.size):
        assert tree.parents[node] < node
        assert nodes[tree.parents[node]] == nodes[node][:-1]
        assert tree.depths[node] == len(nodes[node])
        assert tree.ranks[node] == nodes[node][-1]

    assert tree.mask().tolist() == ancestor_closure(tree.parents)
    leaves = [node for node in range(tree.size) if node not in tree.parents]
    assert tree.paths() == [tiny.path_to(tree.parents, leaf) for leaf in leaves]


@settings(max_examples=30)
@given(parents=tiny.parent_lists(24))
def test_mask_of_any_parents_is_the_ancestor_closure(parents):
    """Also for parents that are not sorted by depth, as later drafters may make them."""
    assert ancestor_mask(parents).tolist() == ancestor_closure(parents)


@settings(max_examples=30)
@given(parents=tiny.parent_lists(24), depth=st.integers(0, 8))
def test_limited_keeps_exactly_the_shallow_nodes(parents, depth):
    tree = Topology.from_choices(tiny.choices_of(parents))
    limited = tree.limited(depth)
    assert list(limited.choices) == [choice for choice in tree.choices if len(choice) <= depth]
    # A shallower tree is the beginning of the deeper one, node by node.
    assert limited.parents == tree.parents[: limited.size]
    assert (limited.mask() == tree.mask()[: limited.size, : limited.size]).all()


@pytest.mark.parametrize(
    "wrap", [lambda choices: choices, lambda choices: {"choices": choices, "note": "mine"}]
)
def test_json_file_as_list_or_object(tmp_path, wrap):
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(wrap([[1], [0, 0], [0]])), encoding="utf-8")
    assert load_tree(str(file)).choices == ((0,), (1,), (0, 0))


FAULTS = {
    "missing prefix": ([[0], [1, 0, 0], [1]], r"\[1, 0, 0\] but not its prefix \[1, 0\]"),
    "duplicate": ([[0], [0, 1], [0, 1]], r"\[0, 1\] twice"),
    "too many nodes": (
        [[i] for i in range(MAX_NODES)],
        rf"{MAX_NODES + 1} nodes, largest size is {MAX_NODES}",
    ),
    "boolean": ([[0], [True]], r"\[True\] is not a list of ranks"),
    "negative": ([[0], [-1]], r"\[-1\] is not a list of ranks"),
    "number": ([0], r"0 is not a list of ranks"),
    "the root": ([[]], r"\[\] is not a list of ranks"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_tree_is_refused_with_the_fault_named(fault, tmp_path):
    choices, message = FAULTS[fault]
    with pytest.raises(MedusaError, match=message):
        Topology.from_choices(choices)
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(choices), encoding="utf-8")
    with pytest.raises(MedusaError, match=message):
        load_tree(str(file))


def test_the_largest_size_is_allowed():
    assert Topology.from_choices([[i] for i in range(MAX_NODES - 1)]).size == MAX_NODES


def test_rank_beyond_the_guesses_and_depth_beyond_the_heads():
    tree = Topology.from_choices([[0], [0, 9], [0, 9, 0]])
    tree.check(heads=3, top_k=10)
    with pytest.raises(MedusaError, match=r"\[0, 9\] uses rank 9, the heads offer ranks 0 to 8"):
        tree.check(heads=3, top_k=9)
    with pytest.raises(MedusaError, match=r"\[0, 9, 0\] has depth 3, there are 2 heads"):
        tree.check(heads=2)


BAD_FILES = {
    "not JSON": (b"[[0], [1", "is not JSON"),
    "nested without end": (b"[" * 200_000, "is not JSON"),
    "no list": (b'"0"', "holds no list of rank tuples"),
    "other object": (b'{"tree": [[0]]}', "holds no list of rank tuples"),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_bad_tree_file(fault, tmp_path):
    content, message = BAD_FILES[fault]
    file = tmp_path / "tree.json"
    file.write_bytes(content)
    with pytest.raises(MedusaError, match=message) as caught:
        load_tree(str(file))
    assert str(file) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(MedusaError, match=r"cannot read the tree .*missing.json: No such file"):
        load_tree(str(tmp_path / "missing.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(MedusaError, match=r"folder.json is a folder: name a .json file"):
        load_tree(str(tmp_path / "folder.json"))


@pytest.mark.parametrize("name", ["", "no-such-tree", "x" * 400])
def test_unknown_name_lists_what_there_is(name):
    with pytest.raises(MedusaError, match=r"no tree is called .* use one of mc_sim_7b_63"):
        load_tree(name)
    with pytest.raises(MedusaError, match=r"no tree is called .* auto, default, dynamic-16, mc_sim_7b_63"):
        named_tree(name, 2, None)


@pytest.mark.parametrize(
    "name", ["cartesian-", "cartesian-2x", "cartesian-2x0", "cartesian-ax2", "cartesian--1"]
)
def test_bad_cartesian_name(name):
    with pytest.raises(MedusaError, match="is not a cartesian tree: write the widths as cartesian-4x2x1"):
        load_tree(name)


@pytest.mark.parametrize(
    "name", ["cartesian-256", "cartesian-16x16", "cartesian-1000000000000", "cartesian-9x999999999"]
)
def test_cartesian_beyond_the_limit_is_refused_before_it_is_built(name):
    with pytest.raises(MedusaError, match=f"has more than {MAX_NODES} nodes"):
        load_tree(name)
