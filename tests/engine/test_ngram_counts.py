"""The counts on n-gram nodes: one shared by several continuations has followed the root in each."""

from __future__ import annotations

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.drafters.ngram import NgramDrafter, Settings


def proposed(engine, text, root, **settings):
    """The tree for ``root`` after ``text``; per node its tokens from the root, label, note and share."""
    drafter = NgramDrafter(engine.target, None, Settings(**settings))
    drafter.begin(text, torch.empty(1, 0))
    tree = drafter.propose(root, 99)
    found = {}
    for node in range(1, tree.size):
        path = tuple(int(tree.tokens[i]) for i in tiny.path_to(tree.parents, node)[1:])
        origin = tree.origins[node]
        found[path] = (origin.label, origin.note, float(tree.draft_logp[node].exp()))
    return found


@given(text=st.lists(st.integers(0, 3), max_size=40), root=st.integers(0, 3), depth=st.integers(1, 4))
def test_every_count_is_the_slow_one(engine, text, root, depth):
    starts = [i for i in range(len(text) - 1) if text[i] == root]
    for path, (label, note, share) in proposed(engine, text, root, draft_depth=depth).items():
        places = [i for i in starts if tuple(text[i + 1 : i + 1 + len(path)]) == path]
        assert label == f"×{len(places)}"
        times = "once" if len(places) == 1 else f"{len(places)} times"
        last = f"last {len(text) - places[-1]} tokens earlier"
        assert note == f"followed the root {times} in the text so far, {last}"
        before = [i for i in starts if tuple(text[i + 1 : i + len(path)]) == path[:-1]]
        assert share == pytest.approx(len(places) / len(before))
