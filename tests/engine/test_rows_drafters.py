"""Drafters that keep something of each row: their memory is told beforehand and made once for a run."""

from __future__ import annotations

import re

import pytest
import tiny
from eagle3_files import with_draft
from hydra_heads import with_hydra
from small_model import with_draft_model
from tokenswift_heads import with_tokenswift

from medusa_core.config import GenerationConfig
from medusa_core.drafters import RowsDrafter, make_drafter
from medusa_core.engine import RunState
from medusa_core.errors import MedusaError
from medusa_core.loading.memory import margin
from medusa_core.longrun.memory import RunMemory, run_memory

NEW = 60
DRAFTERS = {
    "eagle3": (with_draft, {"draft_depth": 3, "draft_top_k": 2, "draft_nodes": 5}),
    "hydra": (with_hydra, {"tree": "cartesian-3x2"}),
    "draft_model": (with_draft_model, {"draft_depth": 2, "draft_top_k": 2, "draft_nodes": 4}),
    "tokenswift": (with_tokenswift, {"draft_budget": 32, "draft_sinks": 2, "draft_ngrams": 3}),
}


@pytest.fixture(params=DRAFTERS)
def drafted(engine, request):
    build, settings = DRAFTERS[request.param]
    return build(engine), GenerationConfig.of(
        method=request.param, max_new_tokens=NEW, ignore_eos=True, **settings
    )


def test_the_memory_of_a_run_is_told_and_does_not_grow(drafted):
    engine, config = drafted
    state = RunState(engine.target.new_cache(0))
    held = [state.drafter.cache_bytes for _ in engine.stream(tiny.PROMPT, config, state=state)]
    assert isinstance(state.drafter, RowsDrafter)
    rows = len(tiny.PROMPT) + NEW + state.drafter.largest_tree
    assert {bytes_held for bytes_held in held if bytes_held} == {state.drafter.cache_bytes_for(rows)}


def test_a_long_run_counts_it(drafted):
    engine, config = drafted
    memory = run_memory(engine, len(tiny.PROMPT), config)
    own = make_drafter(engine.target, engine.drafts, config).cache_bytes_for(memory.rows)
    assert own > 0
    assert memory.cache == engine.target.cache_bytes(memory.rows) + own


def test_a_run_that_does_not_fit_is_told_how_many_rows_do():
    def memory(rows, free):
        weights, cache = 10**9, rows * 10**5
        return RunMemory(rows, weights, cache, margin(weights + cache), free, window=False)

    for free in (4 * 10**8, 10**9, 7 * 10**9):
        with pytest.raises(MedusaError, match="there is room for") as error:
            memory(10**6, free).require()
        rows = int(re.search(r"room for ([\d,]+) rows", str(error.value))[1].replace(",", ""))
        memory(rows, free).require()
        with pytest.raises(MedusaError):
            memory(rows + 2, free).require()


def test_a_conversation_that_grows_keeps_what_was_read(drafted):
    """The second run needs more room than the first has reserved, and drafts as a fresh one does."""
    engine, config = drafted
    state = RunState(engine.target.new_cache(0))
    text = list(tiny.PROMPT)
    text += tiny.emitted(engine.stream(text, GenerationConfig.of(**vars_of(config, 8)), state=state))
    kept = [step.tree.tokens.tolist() for step in engine.stream([*text, 3], config, state=state)]
    assert kept == [step.tree.tokens.tolist() for step in engine.stream([*text, 3], config)]
    merged = GenerationConfig.of(**vars_of(config, 8, method=f"{config.method}+lookup"))
    assert make_drafter(engine.target, engine.drafts, merged).cache_bytes_for(40) > 0


def vars_of(config, tokens, **changes):
    """The settings of ``config`` with another budget."""
    names = DRAFTERS[config.method][1]
    return {"method": config.method, **names, "max_new_tokens": tokens, "ignore_eos": True} | changes
