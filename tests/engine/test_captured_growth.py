"""Trees of EAGLE-3 and MTP layers that grow in one graph, as on a GPU: those that grow level by level."""

from __future__ import annotations

from dataclasses import replace

import eagle3_files
import mtp_files
import pytest
import tiny
import torch
from captures import as_list_of_operations

from medusa_core.config import GenerationConfig
from medusa_core.drafters.eagle3 import captured_growth
from medusa_core.model import captured_forward

SMALL = {"draft_top_k": 3, "draft_depth": 4, "draft_nodes": 14}


@pytest.fixture(scope="module", params=["eagle3", "mtp"])
def drafting(request, engine, tmp_path_factory):
    """An engine with one of the layers that grow such trees, and settings for it."""
    if request.param == "eagle3":
        made = eagle3_files.with_draft(engine)
    else:
        made = mtp_files.with_mtp(engine, tmp_path_factory.mktemp("mtp"))
    return made, SMALL | {"method": request.param}


def captured(engine, method, capture):
    return replace(engine, drafts={method: replace(engine.drafts[method], capture=capture)})


@pytest.fixture
def captures(monkeypatch):
    """How many were made, of buckets that a short text outgrows."""
    monkeypatch.setattr(captured_forward, "_SMALLEST_BUCKET", 8)
    made = []

    def capture(work):
        made.append(work)
        return as_list_of_operations(work)

    return made, capture


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_tree_grown_in_a_graph_is_the_same(drafting, captures, depth):
    """Of two runs that take turns with the same buffers, and outgrow them."""
    plain, settings = drafting
    engine = captured(plain, settings["method"], captures[1])
    settings = settings | {"draft_depth": depth, "max_new_tokens": 16}
    prompts = [tiny.random_tokens(length, seed=length) for length in (3, 6)]
    runs = [engine.stream(prompt, GenerationConfig.of(**settings)) for prompt in prompts]
    slow = [tiny.run(plain, prompt, **settings) for prompt in prompts]
    for step in range(max(map(len, slow))):
        for run, wanted in zip(runs, slow, strict=True):
            if step < len(wanted):
                mine, theirs = next(run).tree, wanted[step].tree
                assert mine.tokens.tolist() == theirs.tokens.tolist()
                assert (mine.parents, mine.origins) == (theirs.parents, theirs.origins)
                torch.testing.assert_close(mine.draft_logp, theirs.draft_logp)
    assert captures[0]


def test_a_graph_serves_all_steps_of_its_bucket_and_few_are_kept(drafting, captures, monkeypatch):
    (plain, settings), (made, capture) = drafting, captures
    engine = captured(plain, settings["method"], capture)
    steps = tiny.run(engine, tiny.random_tokens(9, seed=1), **settings, max_new_tokens=30)
    growth = engine.drafts[settings["method"]].growth
    buckets = [bucket for _, bucket in growth._growths]
    assert buckets == [16, 32, 64]
    assert len(made) == len(buckets) < len(steps)
    monkeypatch.setattr(captured_growth, "_MOST", 1)
    tiny.run(engine, tiny.random_tokens(9, seed=1), **settings, max_new_tokens=2)
    assert [bucket for _, bucket in growth._growths] == [16]


def test_where_no_graph_can_be_captured_the_tree_grows_level_by_level(drafting, caplog):
    plain, settings = drafting
    caplog.set_level("INFO", captured_growth.__name__)

    def fail(work):
        raise RuntimeError("out of memory")

    runs = [
        tiny.run(one, **settings, max_new_tokens=12)
        for one in (captured(plain, settings["method"], fail), plain)
    ]
    mine, theirs = ([step.tree.tokens.tolist() for step in steps] for steps in runs)
    assert mine == theirs
    assert caplog.messages == ["The drafter's trees are not captured: out of memory"]
