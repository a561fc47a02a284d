"""The draft model's trees against a slow version without a cache, and what becomes of its cache."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import small_model
import tiny
import torch
from grown_trees import grown, paths_of

from medusa_core.config import GenerationConfig
from medusa_core.drafters import make_drafter
from medusa_core.engine import RunState

SHAPES = {
    "chain": {"draft_depth": 5},
    "tree": {"draft_top_k": 3, "draft_depth": 4, "draft_nodes": 9},
    "wide": {"draft_top_k": 4, "draft_depth": 2, "draft_nodes": 64},
}


@pytest.fixture(scope="module")
def drafting(engine):
    return small_model.with_draft_model(engine)


def likeliest(model, text, branches, path):
    """The likeliest tokens after a text and a path with their log q, by a forward over all of it."""
    best = model(torch.tensor([[*text, *path]])).logits[0, -1].log_softmax(dim=-1).topk(branches)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_draft_is_that_of_the_model_read_anew(drafting, shape):
    """In every step of a run, so whatever the verdicts have left of its cache."""
    settings, slow = SHAPES[shape], drafting.drafts["draft_model"].model.model
    text = list(tiny.PROMPT)
    accepted = set()
    for step in drafting.stream(
        tiny.PROMPT, GenerationConfig.of(method="draft_model", max_new_tokens=40, **settings)
    ):
        depth = min(settings["draft_depth"], drafting.target.context - 1 - len(text))
        branches, nodes = settings.get("draft_top_k", 1), settings.get("draft_nodes", 15)
        guesses = partial(likeliest, slow, [*text, int(step.tree.tokens[0])], branches)
        wanted = grown(guesses, depth, branches, nodes)
        assert paths_of(step.tree) == pytest.approx(wanted, abs=1e-4)
        accepted.add(len(step.verdict.path))
        text += step.emitted
    assert len(accepted) > 1  # of several lengths


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_accepted_tokens_are_not_read_again(drafting, shape):
    """In a step the small model reads the root, its tree, and of the text only a leaf that was accepted."""
    model = drafting.drafts["draft_model"].model
    read = []

    class Counting(type(model)):
        def verify(self, tree, cache, features=None):
            read.append((cache.length, tree.size))
            return super().verify(tree, cache)

    counting = Counting(model.model)
    engine = replace(
        drafting, drafts={"draft_model": replace(drafting.drafts["draft_model"], model=counting)}
    )
    lengths = []
    config = GenerationConfig.of(method="draft_model", max_new_tokens=40, **SHAPES[shape])
    for step in engine.stream(tiny.PROMPT, config):
        if step.index:
            start, rows = read[0]
            # Only the deepest node of a path was not read in the step before.
            assert step.cache_length - start <= 1
            assert rows == step.cache_length - start + 1
            lengths.append(step.cache_length - start)
        read.clear()
    assert 0 in lengths


def test_the_cache_does_not_grow_with_the_steps(drafting):
    """Many steps of one conversation that is cut back: never more than the context and a tree."""
    config = GenerationConfig.of(
        method="draft_model", max_new_tokens=80, draft_top_k=2, draft_depth=3, ignore_eos=True
    )
    state = RunState(drafting.target.new_cache(0))
    steps = 0
    sizes = set()
    while steps < 150:
        for step in drafting.stream([*tiny.PROMPT, steps % 5], config, state=state):
            steps += 1
            cache = state.drafter._cache
            assert cache.length <= step.cache_length + len(step.tree.tokens) + 1
        sizes.add(cache.slots)
    assert max(sizes) <= drafting.target.context + 1 + 6
    assert len(sizes) <= 4
    assert state.nbytes > state.cache.nbytes  # the small model's is counted


def test_a_small_context_ends_the_drafts_and_not_the_text(engine):
    """Where the text is longer than the small model's context nothing is drafted; all of it is written."""
    small = small_model.first_layers(engine.target.model, max_position_embeddings=24)
    drafting = small_model.with_draft_model(engine, small)
    steps = tiny.run(drafting, method="draft_model", max_new_tokens=60, draft_depth=4)
    assert tiny.emitted(steps) == tiny.emitted(tiny.run(engine, method="none", max_new_tokens=60))
    for step in steps:
        assert max(step.tree.depths) <= max(0, 24 - step.cache_length)
    assert {step.tree.size for step in steps if step.cache_length >= 24} == {1}
    assert any(max(step.tree.depths) == 4 for step in steps)


def test_the_model_itself_as_its_draft_is_always_right(engine):
    same = small_model.with_draft_model(engine, engine.target.model)
    steps = tiny.run(same, method="draft_model", max_new_tokens=40, draft_depth=4)
    assert {len(step.verdict.path) for step in steps[:-1]} == {5}


def test_origins_say_which_guess_of_the_draft_model_it_was(drafting):
    drafter = make_drafter(
        drafting.target,
        drafting.drafts,
        GenerationConfig.of(method="draft_model", draft_top_k=2, draft_depth=3, draft_nodes=6),
    )
    drafter.reserve(len(tiny.PROMPT))
    drafter.begin(tiny.PROMPT, torch.empty(1, 0))
    tree = drafter.propose(3, 9)
    for node in range(1, tree.size):
        origin, depth = tree.origins[node], tree.depths[node]
        ordinal = {1: "1st", 2: "2nd", 3: "3rd"}[depth]
        assert origin.by == "draft_model"
        words = f"the draft model’s {ordinal} token, its guess {origin.rank + 1}"
        assert origin.note == words


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_that_broke_off_leaves_nothing_behind(drafting, shape):
    """A run may end between a draft and its verdict; the next one drafts as if that step had never begun."""
    config = GenerationConfig.of(method="draft_model", **SHAPES[shape])

    def fresh():
        drafter = make_drafter(drafting.target, drafting.drafts, config)
        drafter.reserve(len(tiny.PROMPT) + 2)
        return drafter

    with torch.inference_mode():
        kept, other = fresh(), fresh()
        kept.begin(tiny.PROMPT, torch.empty(1, 0))
        kept.propose(3, 9)  # and no verdict
        text = [*tiny.PROMPT, 7, 2]
        kept.truncate(len(text) - 1)
        for drafter in (kept, other):
            drafter.begin(text, torch.empty(1, 0))
        first, second = kept.propose(5, 9), other.propose(5, 9)
    assert first.tokens.tolist() == second.tokens.tolist()
    assert first.draft_logp.tolist() == pytest.approx(second.draft_logp.tolist(), abs=1e-5)
