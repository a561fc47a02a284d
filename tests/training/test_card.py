"""The card of finished heads: its parts in order, and none for what is not known."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.training.fit.card import Card, tree_line, use_commands

CARD = Card(
    title="Heads",
    summary=["Fast."],
    commands=use_commands("--heads here"),
    training=["On text."],
    accuracy="over 7 positions",
    accuracies=[[0.5, 0.25, 0.125, 0.1], [0.2, 0.1, 0.1, 0.0]],
    tree=tree_line(5, 2, 1.456),
    speed=["Twice."],
)


def test_a_card_has_its_parts_in_order():
    lines = CARD.text().split("\n")
    assert [line for line in lines if line.startswith("#")] == [
        "# Heads", "## Use", "## Training", "## Accuracy", "## Speed",
    ]  # fmt: skip
    assert lines[2] == "Fast."
    assert "python app.py --heads here" in lines
    assert "| 1 | 0.500 | 0.250 | 0.125 |" in lines
    assert lines[-2:] == ["Twice.", ""]


def test_what_is_not_known_has_no_part():
    text = replace(CARD, training=(), speed=(), summary=()).text()
    assert "Training" not in text
    assert "Speed" not in text
    assert text.startswith("# Heads\n\n## Use\n")


def test_a_tree_that_nobody_timed_is_not_called_the_best():
    assert tree_line(5, 2, 1.456).endswith("the best size for the step times measured on this machine.")
    assert tree_line(1, 0, 1, timed=False) == (
        "Tree: 1 node with the root, depth 0, 1.00 tokens per step expected; no size was timed."
    )
