"""The tree in the editor: what the editor is told, what comes back, and the trees it can start with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from medusa_core.drafters.medusa import AUTO, medusa_draft
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.errors import MedusaError
from medusa_core.trees.budget import USUAL_NODES, best_tree
from medusa_core.trees.search import expected_lengths, search_tree
from medusa_core.trees.tree import Choice, cartesian, published_trees
from ui.records.settings import BY_BUDGET, MOST_NODES, Selection
from ui.runs.session import Session
from ui.tabs.trees.head_stats import EDITED, MOST_BYTES, HeadStats, speeds, tree_for, tree_of

EMPTY = "empty"
PAIRS = "pairs"  # the usual example of texts on Medusa: two guesses of head 1, three of head 2
AUTO_TREE = "Auto tree, as in Watch"
TIMED_AUTO = "Auto tree, the fastest by the step times below"
UNTIMED_AUTO = f"Auto tree, {USUAL_NODES} nodes since no step was timed"
NO_GUESS = "The tree is only the root: add a guess first."


def editor_content(stats: HeadStats, nodes: int) -> dict[str, Any]:
    """The editor's data, with the best expected length of each size to compare its own tree with."""
    best = search_tree(stats.accuracies, MOST_NODES - 1).choices
    return {
        "id": stats.tree_id,
        "choices": tree_of(stats, nodes),
        "rows": stats.accuracies,
        "best": expected_lengths(stats.accuracies, best),
        "step_ms": {speed.nodes: speed.step_ms for speed in speeds(stats)},
        "most": MOST_NODES,
    }


def edited(stats: HeadStats, text: str | None) -> HeadStats:
    """The record with the tree that the editor holds; its text is empty where there is no editor yet.

    Raises MedusaError that names the fault: the text comes from a browser.
    """
    if not text:
        return stats
    if len(text) > MOST_BYTES:
        raise MedusaError(f"the tree is longer than {MOST_BYTES // 1000} kB: reload the page")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MedusaError(f"the edited tree is not JSON ({error}): reload the page") from error
    choices = tree_for(stats, data).choices
    if stats.shown is not None and sorted(stats.shown) == sorted(choices):
        return stats
    return replace(stats, shown=choices, kind=EDITED)


def taken(stats: HeadStats, nodes: int, text: str | None) -> list[Choice]:
    """The tree in the editor, to be used or saved. Raises MedusaError when it has no guess."""
    choices = tree_of(edited(stats, text), nodes)
    if not choices:
        raise MedusaError(NO_GUESS)
    return choices


def starts() -> list[tuple[str, str]]:
    """(label, name) of each tree that the editor can start with."""
    first = [
        ("grown by node budget", BY_BUDGET), ("auto: fastest on this machine", AUTO),
        ("empty: only the root", EMPTY), ("2 × 3: two guesses, and three after each", PAIRS),
    ]  # fmt: skip
    return first + [(f"published: {name}", name) for name in published_trees()]


def started(session: Session, selection: Selection, stats: HeadStats, name: str) -> HeadStats:
    """The record with the tree of this name. Raises MedusaError when these heads cannot fill it."""
    if name == BY_BUDGET:
        return stats.grown()
    if name == EMPTY:
        return stats.showing((), "Empty tree")
    if name == AUTO:
        return _auto(session, selection, stats)
    if name == PAIRS:
        tree = tree_for(stats, list(cartesian((2, 3)).choices))
        return stats.showing(tree.choices, "Tree of 2 × 3 guesses")
    tree = tree_for(stats, published_trees()[name])
    return stats.showing(tree.choices, f"Published tree {name}")


def _auto(session: Session, selection: Selection, stats: HeadStats) -> HeadStats:
    """A run's "auto" tree or, where that is not known yet, the fastest by this tab's step times."""
    engine = session.own_engine(selection) if selection.engine else session.models.at_hand(selection)
    fastest = medusa_draft(engine).fastest if engine is not None and MEDUSA in engine.drafts else None
    if fastest is not None:
        return stats.showing(tree_for(stats, fastest.choices).choices, AUTO_TREE)
    found = best_tree(stats.accuracies, stats.latency)
    return stats.showing(found.choices, TIMED_AUTO if stats.latency else UNTIMED_AUTO)
