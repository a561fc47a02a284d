"""The page's greedy verdict accepts the nodes that the engine's does, also where tokens come twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_verdict import Case, cases

pytestmark = pytest.mark.browser


def recorded(case: Case, shares: list[float]) -> dict:
    """A step as a trace has it; p of one token may differ between nodes by rounding."""
    nodes = [
        {"parent": parent if parent >= 0 else None, "token_id": token, "p": share}
        for parent, token, share in zip(case.parents, case.tokens, shares, strict=False)
    ]
    after = [{"node": node, "token_ids": [choice]} for node, choice in enumerate(case.choices)]
    return {"nodes": nodes, "after": after}


# Many trees in one call, since a call takes longer than a tree.
@given(found=st.lists(cases(), min_size=20, max_size=30), data=st.data())
@settings(max_examples=10)
def test_the_page_accepts_the_nodes_that_the_engine_accepts(script_page, found, data):
    shares = data.draw(st.lists(st.floats(0.4, 0.6), min_size=16, max_size=16))
    steps = [recorded(case, shares) for case in found]
    paths = script_page.evaluate("(steps) => steps.map((step) => greedyVerdict(step).path)", steps)
    assert paths == [case.path for case in found]
