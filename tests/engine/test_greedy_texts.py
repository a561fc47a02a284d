"""Every drafter's greedy text is plain decoding's in C: in each kind of weights, to the context's end."""

from __future__ import annotations

from dataclasses import replace

import greedy_texts
import pytest
import tiny
import torch
from greedy_texts import EMBEDDED, KINDS

from medusa_core.api import load
from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.evaluation.prompts import shipped_prompts


@pytest.fixture
def load_with(monkeypatch):
    """Call it with a compiled library: models are loaded with it."""
    return lambda library: monkeypatch.setattr(
        "medusa_core.loading.devices._look_for_library", lambda folder: library
    )


def assert_all_are_plain_decoding_s(rows, kinds=tuple(KINDS)):
    assert {row.kind for row in rows} == set(kinds)
    for kind in kinds:
        methods = {row.method for row in rows if row.kind == kind}
        assert methods >= EMBEDDED - {"none"}
    assert [row for row in rows if row.differing] == []
    assert sum(row.tokens for row in rows) > 1.3 * sum(row.steps for row in rows)  # drafts are kept


def test_with_the_largest_instruction_set(library, load_with):
    load_with(library)
    found = list(greedy_texts.rows(1, 24, *KINDS, merged=False))
    assert {row.isa for row in found} == {library.isa}
    assert_all_are_plain_decoding_s(found)


def test_with_avx2(llama_libraries, library, load_with):
    smaller = llama_libraries("avx2")
    if smaller.isa != "avx2" or library.isa == "avx2":
        pytest.skip("this processor has no AVX2, or nothing larger")
    load_with(smaller)
    found = list(greedy_texts.rows(1, 12, "bfloat16", merged=False))
    assert {row.isa for row in found} == {"avx2"}
    assert_all_are_plain_decoding_s(found, ["bfloat16"])


@pytest.mark.slow
def test_in_texts_of_25_000_tokens(llama_library, load_with):
    load_with(llama_library)
    found = list(greedy_texts.rows(3, 170, *KINDS))
    assert {row.isa for row in found} == {llama_library.isa}
    assert_all_are_plain_decoding_s(found)
    assert sum(row.tokens for row in found) >= 25_000


# --- In bfloat16 greedy Medusa gives plain decoding's tokens, where the forward in C runs.


# Trees narrower and wider than the rows for which kernels change, the widest of which has 85 nodes.
TREES = ("default", "cartesian-2x2x2x2x1", "cartesian-4x3x2", "cartesian-4x4x4")


def tokens(engine, prompt, **settings):
    config = GenerationConfig.of(max_new_tokens=100, ignore_eos=True, **settings)
    return tiny.emitted(engine.stream(prompt, config))


def test_medusa_equals_plain_decoding(embedded):
    """Behind a prompt of 90 tokens."""
    prompt = (shipped_prompts(embedded)[0] * 60)[:90]
    plain = tokens(embedded, prompt, method="none")
    assert {tree: tokens(embedded, prompt, tree=tree) == plain for tree in TREES} == dict.fromkeys(
        TREES, True
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_medusa_equals_plain_decoding_on_every_shipped_prompt(kind, library):
    engine = load(device="cpu", **KINDS[kind])
    for prompt in shipped_prompts(engine):
        plain = tokens(engine, prompt, method="none")
        assert all(tokens(engine, prompt, tree=tree) == plain for tree in TREES)


# --- The last token of the context, where no guess has room, in the forms that heads are held in.


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_run_ends_with_the_context(dtype, batch, library):
    """Heads in C are asked for nothing there."""
    model = tiny.build_model(tiny.tiny_config(2, hidden_size=64, max_position_embeddings=32), dtype=dtype)
    draft = MedusaDraft(tiny.random_heads(model).to(dtype), library=library)
    engine = replace(tiny.build_engine(model, None), drafts={"medusa": draft})
    assert draft.native is not None
    prompts = [tiny.random_tokens(20, seed=seed) for seed in range(batch)]
    config = GenerationConfig.of(tree="cartesian-2x2", max_new_tokens=100)
    last = dict(engine.stream_batch(prompts, config, batch))
    for step in last.values():
        assert step.finish_reason == "context"
        assert step.cache_length + len(step.verdict.path) == 32
