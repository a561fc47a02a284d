"""Rows that a draft sees: chosen, followed, counted in memory, and said in the trace."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
import tiny
import torch
from eagle3_files import with_draft
from hydra_heads import with_hydra
from small_model import with_draft_model
from tokenswift_heads import with_tokenswift

from medusa_core.config import GenerationConfig
from medusa_core.drafters import make_drafter
from medusa_core.drafters.ngram import NgramDrafter
from medusa_core.engine import RunState
from medusa_core.errors import MedusaError
from medusa_core.loading.memory import margin
from medusa_core.longrun.memory import RunMemory, run_memory
from medusa_core.model.features import Features
from medusa_core.model.partial_cache import PartialCache, most_important
from medusa_core.model.target import Target
from medusa_core.trace.builder import write_trace
from medusa_core.trace.format import parse_trace, read_trace
from medusa_core.trace.packed import packed, unpacked

QUERIES = Features(queries=True)
BUDGET, SINKS = 12, 3


@pytest.fixture(scope="module")
def target():
    target = Target(tiny.build_model(tiny.tiny_config(kv_heads=2)))
    return target


def slow_choice(queries, keys, count, sinks):
    """Row by row and head by head, as a set for each key-value head."""
    chosen = []
    group = len(queries) // len(keys)
    for head, rows in enumerate(keys):
        scores = {
            row: sum(float(queries[head * group + one] @ key) for one in range(group))
            for row, key in enumerate(rows) if row >= sinks
        }  # fmt: skip
        best = sorted(scores, key=lambda row: -scores[row])[: count - sinks]
        chosen.append({*range(sinks), *best})
    return chosen


@pytest.mark.parametrize("sinks", [0, 4])
def test_the_rows_are_those_of_the_largest_products(sinks):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(6, 8, generator=generator), torch.randn(3, 40, 8, generator=generator)
    rows = most_important(queries, keys, 10, sinks)
    assert [set(row) for row in rows.tolist()] == slow_choice(queries, keys, 10, sinks)


def test_rows_out_of_a_sliding_layer_s_sight_come_last():
    generator = torch.Generator().manual_seed(1)
    queries, keys = torch.randn(2, 8, generator=generator), torch.randn(1, 40, 8, generator=generator)
    assert min(most_important(queries, keys, 10, 0, window=12)[0].tolist()) >= 40 - 12


def read(target, cache, tokens):
    """Commit tokens; the last one's queries."""
    return target.prefill(tokens, cache, QUERIES)[1][-1]


def held(partial, full, layer=0):
    """Which rows of the text each head of a layer has, by their keys."""
    rows = full.tree_layers[layer].keys[0]
    return [
        {int((text[: full.length] - key).abs().sum(dim=1).argmin()) for key in keys}
        for keys, text in zip(partial.tree_layers[layer].keys[0, :, : partial.length], rows, strict=True)
    ]


@pytest.mark.parametrize("forward", ["c", "transformers"])
def test_new_rows_replace_the_least_important_until_they_no_longer_fit(target, forward, library):
    if forward == "c":
        target = tiny.target_in_c(target.model, library)
    text = tiny.random_tokens(60, seed=3)
    full = target.new_cache(80)
    partial = PartialCache(target, BUDGET, SINKS)
    queries = read(target, full, text[:BUDGET])
    assert partial.over(full, queries) is full  # it fits
    assert partial.nbytes == 0
    selected, bytes_seen, ranked = 0, set(), []
    for length in range(BUDGET + 1, 60):
        queries = read(target, full, text[length - 1 : length])
        over = partial.over(full, queries)
        if selected == 0 or length - selected > BUDGET - SINKS:
            selected = length
            first = queries.view(2, 4, -1)[0]
            ranked = most_important(first, full.tree_layers[0].keys[0, :, :length], BUDGET, SINKS).tolist()
        new = length - selected
        assert held(over, full) == [{*row[: BUDGET - new], *range(selected, length)} for row in ranked]
        assert (over.length, over.position) == (BUDGET, length)
        said = {row for start, end in partial.ranges for row in range(start, end)}
        assert said == set().union(*held(over, full, 0), *held(over, full, 1))
        assert all(end < start for (_, end), (start, _) in pairwise(partial.ranges))
        bytes_seen.add(partial.nbytes)
    assert len(bytes_seen) == 1


def test_rows_that_are_no_longer_the_text_s_are_chosen_anew(target):
    text = tiny.random_tokens(30, seed=3)
    full, partial = target.new_cache(40), PartialCache(target, BUDGET, SINKS)
    partial.over(full, read(target, full, text))
    full.truncate(20)
    partial.forget(20)
    other = read(target, full, [5, 7])
    ours = held(partial.over(full, other), full)
    fresh = held(PartialCache(target, BUDGET, SINKS).over(full, other), full)
    assert ours == fresh


def test_sinks_that_leave_no_choice_are_refused(target):
    with pytest.raises(MedusaError, match=r"a draft sees 12 rows and the first 12 .*: lower --draft-sinks"):
        PartialCache(target, 12, 12)


# --- Drafters that keep something of each row: their memory is told beforehand and made once for a run.


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
    assert state.drafter is not None
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


# --- A drafter that reads a part of the cache says which rows it saw, and the trace keeps that.


CONFIG = GenerationConfig.of(method="ngram", max_new_tokens=12)


@pytest.fixture
def builder(engine, monkeypatch):
    """Of a drafter that says of every step but the first that it saw two rows at either end."""
    propose = NgramDrafter.propose

    def partial(self, root, depth):
        tree, length = propose(self, root, depth), len(tiny.PROMPT) + self.steps
        self.steps += 1
        return tree if self.steps == 1 else replace(tree, drafter_rows=[(0, 2), (length - 2, length)])

    monkeypatch.setattr(NgramDrafter, "steps", 0, raising=False)
    monkeypatch.setattr(NgramDrafter, "propose", partial)
    return tiny.recorded(engine, CONFIG)


@pytest.fixture
def trace(builder):
    return builder.finish()


def test_the_trace_keeps_them_in_all_its_forms(builder, trace, tmp_path):
    first, *others = trace["steps"]
    assert "drafter_rows" not in first
    assert all(step["drafter_rows"][0] == [0, 2] for step in others)
    assert unpacked(packed(trace)) == trace
    write_trace(builder.ended(), tmp_path / "trace.json")
    read = read_trace(tmp_path / "trace.json")
    assert [step.drafter_rows for step in read.steps] == [step.get("drafter_rows") for step in trace["steps"]]
    assert packed(read.model_dump(mode="json")) == packed(trace)


def test_a_drafter_that_says_nothing_leaves_the_trace_as_it_was(engine):
    assert all("drafter_rows" not in step for step in tiny.recorded(engine, CONFIG).finish()["steps"])


@pytest.mark.parametrize("ranges", [[[0, 10_000]], [[2, 2]], [[3, 4], [1, 2]], [[0, 2, 3]], [[-1, 2]]])
def test_ranges_that_cannot_be_are_refused(trace, ranges):
    trace["steps"][1]["drafter_rows"] = ranges
    with pytest.raises(MedusaError, match="drafter_rows"):
        parse_trace(json.dumps(trace).encode(), "the file")
