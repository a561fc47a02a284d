"""A greedy step that is one call of C: the same as by phases, to the bit."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core import decoding
from medusa_core.acceptance.match import matched
from medusa_core.acceptance.sampling import largest
from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.errors import MedusaError
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.greedy import GreedySteps
from medusa_core.llama.library import Library
from medusa_core.llama.panels import Panels
from medusa_core.llama.weights import read_weights
from medusa_core.model.target import Target

VOCABULARY, CONTEXT = 32, 400  # the latter longer than the first table of rotations
TREES = ("cartesian-4x2x2", "cartesian-1x1x1", "cartesian-3")
BY_HEADS = [{}, {"acceptance": "typical"}, {"acceptance": "rejection"}]


def text(length, seed):
    return tiny.random_tokens(length, seed, VOCABULARY)


@pytest.fixture(scope="module")
def models():
    """With heads for whose attention there are tiles, and without."""
    made = {}
    for size in (16, 32):
        config = tiny.tiny_config(
            2, vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, head_dim=size,
            max_position_embeddings=CONTEXT,
        )  # fmt: skip
        model = tiny.build_model(config)
        heads = tiny.fitted_heads(model)
        made[size] = model.bfloat16(), heads.bfloat16()
    return made


def engine_of(models, library, size):
    model, heads = models[size]
    engine = tiny.build_engine(model, None)
    draft = MedusaDraft(heads, library=library)
    return replace(engine, target=tiny.target_in_c(model, library), drafts={"medusa": draft})


@pytest.fixture(params=[16, 32])
def engine(models, library, request):
    return engine_of(models, library, request.param)


@pytest.fixture
def one_engine(models, library):
    return engine_of(models, library, 32)


@pytest.fixture
def made(monkeypatch):
    """The paths of the steps that this thread makes in C: another module's app may have a run under way."""
    paths, run, own = [], GreedySteps.run, threading.get_ident()

    def counted(*given_ones):
        done = run(*given_ones)
        if threading.get_ident() == own:
            paths.append(done.path)
        return done

    monkeypatch.setattr(GreedySteps, "run", counted)
    return paths


def steps_of(engine, prompt=tiny.PROMPT, **changes):
    config = {"tree": TREES[0], "max_new_tokens": 40, "ignore_eos": True} | changes
    return list(engine.stream(prompt, GenerationConfig.of(**config)))


def by_phases(monkeypatch, *given_ones, **changes):
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "greedy_steps", lambda *_: None)
        return steps_of(*given_ones, **changes)


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        for name in ("emitted", "verdict", "cache_length", "finish_reason"):
            assert getattr(one, name) == getattr(other, name)
        assert (one.tree.parents, one.tree.origins) == (other.tree.parents, other.tree.origins)
        for name in ("tokens", "draft_logp", "mask"):
            assert getattr(one.tree, name).equal(getattr(other.tree, name))
        assert one.logits.equal(other.logits)
        assert one.model_logits.equal(other.model_logits)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("changes", [{"method": "none"}, *BY_HEADS], ids=str)
def test_steps_are_those_by_phases(engine, made, monkeypatch, changes, tree):
    for length in (4, 11):
        prompt = text(length, seed=length)
        wanted = by_phases(monkeypatch, engine, prompt, tree=tree, **changes)
        assert not made
        assert_same(steps_of(engine, prompt, tree=tree, **changes), wanted)
        assert len(made) == len(wanted)
        made.clear()


def test_some_paths_are_moved_and_some_end_early(one_engine, made):
    for seed in range(3):
        steps_of(one_engine, text(9, seed=seed))
    assert len(set(map(len, made))) > 2
    assert any(path != list(range(len(path))) for path in made)


@given(parents=tiny.parent_lists(), seed=st.integers(0, 1000), length=st.integers(1, 90))
@settings(max_examples=40)
@torch.inference_mode()
def test_any_tree_leaves_the_rows_that_a_verdict_and_a_commit_leave(models, library, parents, seed, length):
    """Also where siblings hold the same token, so that several paths are as long."""
    generator = torch.Generator().manual_seed(seed)
    for size in models:
        target = engine_of(models, library, size).target
        caches = []
        for _ in range(2):
            caches.append(target.new_cache(128))
            target.prefill(text(length, seed), caches[-1])
        one, other = caches
        tokens = torch.randint(0, VOCABULARY, (len(parents),), generator=generator)
        for node, parent in enumerate(parents[1:], start=1):
            # Two in three are what the model says, once the tokens before them are known.
            if torch.rand(1, generator=generator) < 0.67:
                logits, _ = target.verify(tiny.token_tree(parents, tokens.tolist()), one)
                tokens[node] = logits[parent].argmax()
        tree = tiny.token_tree(parents, tokens.tolist())
        logits, _ = target.verify(tree, one)
        chosen = logits.argmax(-1).tolist()
        wanted = matched(tree, tokens.tolist(), chosen)
        one.commit(wanted.path)

        found = tiny.greedy_step(target.forward, other, tree)
        assert found.tree.tokens.equal(tokens)
        assert found.logits.equal(logits)
        assert found.choices == chosen
        other.commit(range(len(wanted.path)))
        after = [target.verify(tiny.token_tree([-1], [wanted.bonus]), cache)[0] for cache in caches]
        assert after[0].equal(after[1])


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), end=st.integers(1, 96), method=st.sampled_from(["none", "medusa"]))
def test_texts_are_the_same_to_the_end_of_the_context(models, library, seed, end, method):
    engine = engine_of(models, library, 32)
    prompt = text(CONTEXT - 60, seed)
    with pytest.MonkeyPatch.context() as patch:
        wanted = by_phases(patch, engine, prompt, method=method, max_new_tokens=end)
    assert_same(steps_of(engine, prompt, method=method, max_new_tokens=end), wanted)


@pytest.mark.parametrize("method", ["none", "medusa"])
def test_a_text_outgrows_the_table_of_rotations(one_engine, made, monkeypatch, method):
    wanted = by_phases(monkeypatch, one_engine, method=method, max_new_tokens=350)
    assert_same(steps_of(one_engine, method=method, max_new_tokens=350), wanted)
    assert sum(map(len, made)) > 340


@pytest.mark.parametrize(
    "changes",
    [{"temperature": 0.7}, {"method": "ngram"}, {"method": "medusa+ngram"}, {"penalty": 1.2}],
    ids=str,
)
def test_what_needs_python_goes_by_phases(one_engine, made, changes):
    steps_of(one_engine, **changes)
    assert not made


def test_heads_that_are_not_in_c_go_by_phases(one_engine, made):
    engine = replace(one_engine, drafts={"medusa": replace(one_engine.drafts["medusa"], library=None)})
    steps_of(engine)
    assert not made


def test_the_texts_of_a_batch_go_by_phases_and_the_last_one_alone(one_engine, made, monkeypatch):
    config = GenerationConfig.of(tree=TREES[0], max_new_tokens=40)
    prompts, texts, ended = [text(5, seed) for seed in range(4)], {}, set()
    for number, step in one_engine.stream_batch(prompts, config, 2):
        texts[number] = texts.get(number, []) + step.emitted
        if len(ended) < 3:
            assert not made
        ended |= {number} if step.finish_reason else set()
    assert made
    for number, prompt in enumerate(prompts):
        assert texts[number] == tiny.emitted(by_phases(monkeypatch, one_engine, prompt, ignore_eos=False))


def test_a_conversation_that_outgrows_its_buffers_goes_on(one_engine, made, monkeypatch):
    state, said = one_engine.new_state(4, GenerationConfig.of(tree=TREES[0])), list(tiny.PROMPT)
    for _ in range(3):
        config = GenerationConfig.of(tree=TREES[0], max_new_tokens=20, ignore_eos=True)
        found = tiny.emitted(one_engine.stream(said, config, state=state))
        assert found == tiny.emitted(by_phases(monkeypatch, one_engine, said, max_new_tokens=20))
        said += [*found, 3]
    assert made


def test_threads_may_come_and_go_within_a_run(one_engine, made, monkeypatch):
    wanted, calls = by_phases(monkeypatch, one_engine), itertools.count()
    monkeypatch.setattr(Library, "most_threads", 3)
    monkeypatch.setattr(Library, "begin_call", lambda self: 1 + next(calls) % 3)
    config = GenerationConfig.of(tree=TREES[0], max_new_tokens=40, ignore_eos=True)
    found = list(one_engine.stream(tiny.PROMPT, config))
    assert_same(found, wanted)
    assert len(made) == len(found)


def test_a_call_uses_no_more_threads_than_it_has_room_for(one_engine, monkeypatch):
    """Runs in other threads of the process change the number while a call is prepared."""
    counts, rooms, called = itertools.cycle((1, 3, 2, 4)), [], []
    monkeypatch.setattr(Library, "most_threads", property(lambda self: next(counts)))
    functions = one_engine.target.forward.library.functions

    def watch(name, number_of_threads, told):
        real = getattr(functions, name)
        monkeypatch.setattr(
            functions, name, lambda *given: (told(number_of_threads(*given)), real(*given))[1]
        )

    watch("work_bytes", lambda model, rows, keys, threads: threads, rooms.append)
    watch("forward", lambda model, batch: batch.threads, lambda threads: called.append((threads, rooms[-1])))
    watch("greedy_step", lambda step: step.batch.contents.threads, lambda n: called.append((n, rooms[-1])))
    steps_of(one_engine)
    assert len(called) > 5
    assert all(threads <= room for threads, room in called), called


def test_a_back_off_counts_each_call_once(one_engine, monkeypatch):
    """The first step of a run prepares its batch too."""
    begun, called = [], []
    begin, functions = Library.begin_call, one_engine.target.forward.library.functions
    monkeypatch.setattr(Library, "begin_call", lambda self: begun.append(1) or begin(self))
    for name in ("forward", "greedy_step", "run_heads"):
        real = getattr(functions, name)
        monkeypatch.setattr(
            functions, name, lambda *given, name=name, real=real: (called.append(name), real(*given))[1]
        )
    steps_of(one_engine)
    assert called.count("greedy_step") > 5
    assert len(begun) == len(called)


def test_a_step_keeps_its_tensors(one_engine):
    """The next one writes to others."""
    steps = steps_of(one_engine, method="none")
    for step in steps[:-1]:
        assert int(step.logits[0].argmax()) == steps[step.index + 1].emitted[0]


def test_an_overflow_is_told(one_engine, made, monkeypatch):
    run = GreedySteps.run

    def overflowing(steps, *given):
        done = run(steps, *given)
        if steps._forward is one_engine.target.forward and len(made) == 3:
            done.logits.fill_(torch.nan)
        return done

    monkeypatch.setattr(GreedySteps, "run", overflowing)
    with pytest.raises(MedusaError, match="the model's output is not a number"):
        steps_of(one_engine)
    assert len(made) == 3


def test_phases_are_counted_in_c(one_engine):
    for step in steps_of(one_engine):
        ms = step.ms
        assert min(ms.propose, ms.verify, ms.accept, ms.commit) > 0
        assert ms.propose + ms.verify + ms.accept + ms.commit <= ms.total


@torch.inference_mode()
def test_a_choice_is_torch_s_also_of_numbers_that_are_none(models, library):
    """The first NaN where a row has one, else the first of the largest."""
    model, _ = models[32]
    target = Target(model)
    weights = read_weights(model, target.layer_kinds, None)
    for changed in ([], [7], [30, 3], [5, 6]):
        head = weights.head.unpacked().clone()
        head[20] = head[26] = head[11]  # the same logit three times
        head[changed] = torch.nan
        own = replace(weights, head=Panels.of(head))
        forward = LlamaForward(own, target.masks, CONTEXT, library)
        cache = forward.new_cache(64)
        for seed in range(30):
            tree = tiny.token_tree([-1, 0, 0], text(3, seed))
            found = tiny.greedy_step(forward, cache, tree)
            assert found.choices == largest(found.logits).tolist()
