"""What the browser computes of an edited tree, against the formulas of the engine."""

from __future__ import annotations

import random

import pytest

from medusa_core.trees.baselines import random_choices
from medusa_core.trees.search import assumed_accuracies, expected_lengths, node_value, search_tree
from medusa_core.trees.tree import cartesian, published_trees
from ui.components.views import editor_script

pytestmark = pytest.mark.browser

ROWS = assumed_accuracies(5)
TREES = [
    [],
    [(0,)],
    search_tree(ROWS, 63).choices,
    list(cartesian((4, 2, 2)).choices),
    [(3,), (0,), (0, 7), (3, 1), (0, 7, 9)],  # out of order, with ranks left out
    *([tuple(choice) for choice in choices] for choices in published_trees().values()),
    *(random_choices(ROWS, 40, seed) for seed in range(4)),
]


@pytest.fixture(scope="module")
def script_page(chromium):
    page = chromium.new_page()
    page.add_script_tag(content=editor_script())
    yield page
    page.close()


def test_the_browser_expects_of_a_tree_what_python_expects(script_page):
    script = """([rows, trees]) => trees.map((nodes) => [expectedLength(rows, nodes),
        nodes.map((node) => nodeValue(rows, node))])"""
    for choices, (length, values) in zip(TREES, script_page.evaluate(script, [ROWS, TREES]), strict=True):
        assert length == pytest.approx(expected_lengths(ROWS, choices)[-1], rel=1e-12)
        assert values == pytest.approx([node_value(ROWS, choice) for choice in choices], rel=1e-12)


def test_taking_always_the_likeliest_addition_grows_the_tree_of_the_search(script_page):
    grown = script_page.evaluate(
        """([rows, steps]) => {
          const nodes = [];
          for (let i = 0; i < steps; i++) nodes.push(additions(rows, nodes)[0].node);
          return nodes;
        }""",
        [ROWS, 63],
    )
    assert [tuple(node) for node in grown] == search_tree(ROWS, 63).choices


def test_edits_give_every_tree_its_next_guesses_and_take_subtrees_whole(script_page):
    """Against the same said with sets."""
    rng = random.Random(3)
    for choices in TREES[1:]:
        node = rng.choice(choices)
        tree = {"rows": ROWS, "nodes": choices, "most": 64}
        without = script_page.evaluate("([tree, node]) => withoutNode(tree, node)", [tree, node])
        left = {tuple(each) for each in without["nodes"]}
        assert left == {each for each in choices if each[: len(node)] != node}
        assert without["gain"] == pytest.approx(
            expected_lengths(ROWS, sorted(left))[-1] - expected_lengths(ROWS, choices)[-1], abs=1e-12
        )
        back = script_page.evaluate(
            "([tree, node]) => withGuess(tree, node)", [tree | {"nodes": without["nodes"]}, node[:-1]]
        )
        free = next(rank for rank in range(len(ROWS[len(node) - 1])) if (*node[:-1], rank) not in left)
        assert tuple(back["added"]) == (*node[:-1], free)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("withGuess(full, [5])", "The tree has 64 nodes and the limit here is 64"),
        ("withGuess(small, [0])", "No guess can follow one of head 1"),
        ("withGuess(small, [])", "Head 1 offers 1 guess here and none is left"),
        ("withoutNode(small, [])", "cannot be removed"),
        ("withoutNode(small, [1])", "not in the tree"),
    ],
)
def test_what_cannot_be_is_said(script_page, edit, words):
    full = {"rows": ROWS, "nodes": search_tree(ROWS, 63).choices, "most": 64}
    small = {"rows": [[0.5]], "nodes": [[0]], "most": 64}
    assert words in script_page.evaluate(f"([full, small]) => {edit}.refused", [full, small])
