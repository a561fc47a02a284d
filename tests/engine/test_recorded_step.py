"""A step that the device makes alone: the same as by phases, one list of operations, no host read."""

from __future__ import annotations

import gc
import logging

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_static_forward import as_list_of_operations, engine_on

from medusa_core import decoding
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.model.static_forward import not_recorded
from medusa_core.whole_step import recorded
from medusa_core.whole_step.recorded import RecordedStep

TREES = ("cartesian-4x2x2", "cartesian-1x1x1", "cartesian-3")


def run_thrice_first(work):
    """As a GPU records: the work runs some times before what it returns counts."""
    for _ in range(3):
        work()
    return as_list_of_operations(work)


@pytest.fixture(scope="module")
def engine(model):
    return engine_on(model, run_thrice_first)


@pytest.fixture
def made(monkeypatch):
    """The verdicts of the steps that the device makes."""
    verdicts, call = [], RecordedStep.__call__

    def counted(*given_ones):
        done = call(*given_ones)
        verdicts.append(done.verdict)
        return done

    monkeypatch.setattr(RecordedStep, "__call__", counted)
    return verdicts


def by_phases(monkeypatch, engine, prompt, **changes):
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "whole_step_of", lambda *_: None)
        return numbers(engine, prompt, **changes)


def numbers(engine, prompt=tiny.PROMPT, **changes):
    """What each step says, copied, since its tensors are overwritten by the next one."""
    config = GenerationConfig.of(**{"tree": TREES[0], "max_new_tokens": 40, "ignore_eos": True} | changes)
    return [
        (
            [step.emitted, step.verdict, step.cache_length, step.finish_reason, step.tree.tokens.tolist()],
            [step.logits.clone(), step.tree.draft_logp.clone(), step.tree.mask.clone()],
        )
        for step in engine.stream(prompt, config)
    ]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    "changes", [{"method": "none"}, {}, {"acceptance": "typical"}, {"acceptance": "rejection"}], ids=str
)
def test_steps_are_those_by_phases(engine, made, monkeypatch, changes, tree):
    paths = []
    for length in (4, 11):
        prompt = tiny.random_tokens(length, seed=length)
        wanted = by_phases(monkeypatch, engine, prompt, tree=tree, **changes)
        assert not made
        found = numbers(engine, prompt, tree=tree, **changes)
        assert len(made) == len(found) == len(wanted)
        for (said, tensors), (own_said, own_tensors) in zip(found, wanted, strict=True):
            assert said == own_said
            for one, own in zip(tensors, own_tensors, strict=True):
                torch.testing.assert_close(one, own, atol=1e-5, rtol=1e-5)
        paths += [verdict.path for verdict in made]
        made.clear()
    # Some paths are moved, some stop in the middle.
    assert "method" in changes or any(path != list(range(len(path))) for path in paths) or tree == TREES[1]
    assert "method" in changes or len({len(path) for path in paths}) > 1


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 60), end=st.integers(1, 96))
def test_texts_are_greedy_decoding_s_to_the_end_of_the_context(model, engine, seed, length, end):
    """Where the tree is too deep for the context steps go by phases again, and the context ends the run."""
    prompt = tiny.random_tokens(length, seed=seed)
    steps = tiny.run(engine, prompt, method="medusa", max_new_tokens=end)
    wanted = tiny.transformers_greedy(model, prompt, min(end, 96 - length))
    assert tiny.emitted(steps) == wanted


@pytest.mark.parametrize(
    "changes",
    [{"temperature": 0.7}, {"method": "ngram"}, {"method": "medusa+ngram"}, {"penalty": 1.2}],
    ids=str,
)
def test_what_needs_the_host_goes_by_phases(engine, made, changes):
    numbers(engine, **changes)
    assert not made


def test_the_texts_of_a_batch_go_by_phases_and_the_last_one_alone(engine, made, model):
    config = GenerationConfig.of(tree=TREES[0], max_new_tokens=40)
    prompts, texts, ended = [tiny.random_tokens(5, seed=seed) for seed in range(4)], {}, set()
    for number, step in engine.stream_batch(prompts, config, 2):
        texts[number] = texts.get(number, []) + step.emitted
        if len(ended) < 3:
            assert not made
        ended |= {number} if step.finish_reason else set()
    assert made
    for number, prompt in enumerate(prompts):
        assert texts[number] == tiny.transformers_greedy(model, prompt, 40)


def test_a_conversation_that_outgrows_its_buffers_goes_on(engine, made, model):
    state = engine.new_state(4, GenerationConfig.of(tree=TREES[0]))
    text = list(tiny.PROMPT)
    for _ in range(3):
        config = GenerationConfig.of(tree=TREES[0], max_new_tokens=20, ignore_eos=True)
        said = tiny.emitted(list(engine.stream(text, config, state=state)))
        assert said == tiny.transformers_greedy(model, text, 20)
        text += [*said, 3]
    assert made


def test_a_run_that_was_recorded_is_recorded_no_more(model):
    recorded = []

    def record(work):
        recorded.append(work)
        return not_recorded(work)

    engine = engine_on(model, record)
    numbers(engine)
    first = len(recorded)
    for seed in range(3):
        gc.collect()
        numbers(engine, tiny.random_tokens(6, seed=seed))
    assert len(recorded) == first


def test_a_device_that_cannot_record_steps_goes_by_phases_and_says_so_once(model, caplog):
    asked = []

    def record(work):
        if "_step" in work.__qualname__ or "_OnDevice" in work.__qualname__:
            asked.append(work)
            raise RuntimeError("operation not permitted when stream is capturing")
        return work

    engine = engine_on(model, record)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            steps = tiny.run(engine, max_new_tokens=30)
            assert tiny.emitted(steps) == tiny.transformers_greedy(model, tiny.PROMPT, 30)
    assert len(asked) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Steps are launched phase by phase: operation not permitted when stream is capturing"
    ]


def test_memory_that_runs_out_is_told(model, monkeypatch):
    def record(work):
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine = engine_on(model, not_recorded)
    monkeypatch.setattr(engine.target.lean, "record", record)
    with pytest.raises(MedusaError, match="too little memory"):
        numbers(engine)


def test_behind_the_end_of_a_path_rows_stay_where_they_are():
    shape = tiny.token_tree([-1, 0, 0, 1, 2], [0] * 5)
    assert recorded._paths(shape) == [[0, 1, 2], [0, 1, 2], [0, 2, 2], [0, 1, 3], [0, 2, 4]]
