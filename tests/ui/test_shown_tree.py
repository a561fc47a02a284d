"""The tree of the Trees tab's editor on the server: what the browser sends, and the trees to start from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny

from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.trees.budget import LatencyPoint, best_tree
from medusa_core.trees.search import assumed_accuracies, expected_lengths, search_tree
from ui.records.settings import BY_BUDGET, Selection
from ui.tabs.trees import head_stats, shown_tree
from ui.tabs.trees.head_stats import HeadStats
from ui.tabs.trees.shown_tree import edited, editor_content, started, taken

ROWS = ((0.6, 0.2, 0.1), (0.5, 0.2, 0.05), (0.3, 0.1, 0.1))
LAB = HeadStats(ROWS, "written here")
LATENCY = tuple(LatencyPoint(nodes=nodes, step_ms=ms) for nodes, ms in ((1, 10), (4, 11), (16, 30)))


def test_the_editor_is_told_the_tree_and_the_most_that_any_tree_of_a_size_has():
    content = editor_content(replace(LAB, latency=LATENCY), 9)
    assert content["choices"] == search_tree(ROWS, 8).choices
    for nodes in (1, 5, 40):
        length = expected_lengths(ROWS, search_tree(ROWS, 39).choices[: nodes - 1])[-1]
        assert content["best"][nodes - 1] == pytest.approx(length)
    assert content["step_ms"][1] == 10
    json.dumps(content, allow_nan=False)


def test_an_edited_tree_is_what_the_tab_speaks_of_uses_and_saves():
    stats = edited(LAB, "[[1], [0], [0, 2]]")
    assert stats.shown == ((0,), (1,), (0, 2))
    assert head_stats.sentence(stats, 30).startswith("Edited tree: 4 nodes with the root, 1.83 tokens")
    assert stats.tree_id == LAB.tree_id  # the editor keeps what it has
    assert taken(LAB, 30, "[[2]]") == [(2,)]
    loaded = head_stats.read_stats("[[0], [1]]", LAB, "file")
    assert edited(loaded, "[[1], [0]]") is loaded  # nothing was edited
    assert edited(loaded, "") is loaded  # no editor is there yet
    assert taken(loaded, 30, None) == [(0,), (1,)]


def test_the_root_alone_can_be_edited_but_not_used():
    stats = edited(LAB, "[]")
    assert head_stats.sentence(stats, 30).startswith("Edited tree: 1 node with the root, 1.00 tokens")
    assert editor_content(stats, 30)["choices"] == []
    with pytest.raises(MedusaError, match="add a guess first"):
        taken(stats, 30, "[]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "not a list of rank tuples"),
        ('{"choices": [[0]]}', "not a list of rank tuples"),
        ('[["<b>"]]', "not a list of ranks"),
        ("[[0, 0]]", "but not its prefix"),
        ("[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]", "there are 3 heads"),
        ("[[7]]", "head 1 offers ranks 0 to 2"),
        ("[[0], [0, 10]]", "ranks 0 to"),
        (json.dumps([[i] for i in range(400)]), "largest size is 256"),
        (" " * 200_001, "longer than 200 kB"),
    ],
)
def test_a_forged_tree_is_refused_in_one_line(text, words):
    with pytest.raises(MedusaError, match=words):
        edited(LAB, text)


def test_heads_with_fewer_known_guesses_bound_the_tree_each_for_itself():
    uneven = HeadStats(((0.6, 0.2), (0.5,)), "written here")
    assert edited(uneven, "[[0], [1], [0, 0]]").shown is not None
    with pytest.raises(MedusaError, match="head 2 offers ranks 0 to 0"):
        edited(uneven, "[[0], [0, 1]]")
    grown = search_tree(uneven.accuracies, 4).choices
    assert taken(uneven, 5, json.dumps(grown)) == sorted(grown, key=lambda choice: (len(choice), choice))


def test_every_start_gives_a_tree_or_says_why_not(session):
    wide = HeadStats(head_stats.frozen(assumed_accuracies(5)), "written here")
    for _, name in shown_tree.starts():
        stats = started(session, Selection(), wide, name)
        assert stats.tree_id != wide.tree_id, name
        assert (stats.shown is None) == (name == BY_BUDGET)
    assert stats.kind.startswith("Published tree")
    with pytest.raises(MedusaError, match="there are 3 heads"):
        started(session, Selection(), LAB, "vicuna_7b_stage2")


def test_auto_is_the_tree_that_a_run_takes_where_that_is_known(session, model):
    unknown = started(session, Selection(), LAB, "auto")
    assert (len(unknown.shown) + 1, unknown.kind) == (8, shown_tree.UNTIMED_AUTO)
    timed = replace(LAB, latency=LATENCY)
    here = started(session, Selection(), timed, "auto")
    assert list(here.shown) == best_tree(ROWS, LATENCY).choices
    own = with_heads(tiny.build_engine(model, tiny.fitted_heads(model)), accuracies=[list(r) for r in ROWS])
    own = with_heads(own, latency=(*LATENCY[:2], LatencyPoint(nodes=16, step_ms=11)))
    selection = Selection().with_engine(session.add_engine(own), "mine")
    found = started(session, selection, timed, "auto")
    assert list(found.shown) == sorted(
        medusa_draft(own).fastest.choices, key=lambda choice: (len(choice), choice)
    )
    assert found.kind == shown_tree.AUTO_TREE
    assert len(found.shown) > len(here.shown)
