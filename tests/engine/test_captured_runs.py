"""The forward that a graph can capture: noted once, replayed over the same buffers, no host read."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiny
import torch
from captures import as_list_of_operations, captured_target, engine_on, not_captured
from families import alone, family_model
from torch.testing import assert_close

from medusa_core.config import GenerationConfig
from medusa_core.engine import RunState
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import Bench
from medusa_core.evaluation.sweep import Sweep, cases_of
from medusa_core.model import captured_forward
from medusa_core.model.captured_forward import SIZES, HostReadError, NoHostReads
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target


@pytest.mark.sample(3)
@pytest.mark.parametrize("capture", [not_captured, as_list_of_operations])
@pytest.mark.parametrize("method", ["none", "medusa", "ngram"])
def test_runs_give_transformers_own_greedy_tokens(model, capture, method):
    engine = engine_on(model, capture)
    for length in (4, 9):
        prompt = tiny.random_tokens(length, seed=length)
        steps = tiny.run(engine, prompt, method=method, max_new_tokens=40)
        assert tiny.emitted(steps) == tiny.transformers_greedy(model, prompt, 40)
        assert method == "none" or len(steps) < 40


def test_what_is_captured_is_kept_for_later_runs(model):
    captured = []

    def capture(work):
        captured.append(work)
        return work

    engine = engine_on(model, capture)
    tiny.run(engine, max_new_tokens=40)
    first = len(captured)
    assert 0 < first < 6  # one for each padded size and bucket, not for each step
    for _ in range(3):
        gc.collect()
        tiny.run(engine, max_new_tokens=40)
    assert len(captured) == first


def bench(engine, prompts, config):
    return Bench(engine, prompts, ["none", "ngram"], config, 1)


def sweep(engine, prompts, config):
    return Sweep(cases_of("dtype", engine, ["none", "ngram"], config, prompts, ()), 3)


def batches(engine, prompts, config):
    return Sweep(cases_of("batch", engine, ["none"], config, prompts * 2, (3, 1)), 3)


@pytest.mark.parametrize("measurement", [bench, sweep, batches])
def test_a_measurement_captures_nothing_while_it_measures(model, monkeypatch, measurement):
    """Texts of other lengths lie in other buckets."""
    monkeypatch.setattr(captured_forward, "_SMALLEST_BUCKET", 16)
    captured = []

    def capture(work):
        captured.append(work)
        return work

    engine = engine_on(model, capture)
    prompts = [tiny.random_tokens(length, seed=length) for length in (30, 4, 70)]
    measured = measurement(engine, prompts, GenerationConfig.of(max_new_tokens=8))
    counts = [len(captured) for _ in measured.turns()]
    assert len(counts) == 6
    assert len(set(counts)) == 1


def test_no_more_memories_are_kept_than_were_in_use_at_once(model):
    target = captured_target(model)
    caches = [target.new_cache(20) for _ in range(4)]
    del caches[1:]
    gc.collect()
    assert len(target.forward._idle) == 3
    caches += [target.new_cache(40) for _ in range(2)]  # too large for those, of which two make room
    assert len(target.forward._idle) == 1
    caches.clear()
    gc.collect()
    assert len(target.forward._idle) == 4


def test_a_text_of_a_batch_gets_the_memory_of_one_that_has_ended(model):
    engine = engine_on(model)
    prompts = [tiny.random_tokens(5, seed=seed) for seed in range(3)]
    list(engine.stream_batch(prompts, GenerationConfig.of(max_new_tokens=4), 1))
    gc.collect()
    assert len(engine.target.forward._idle) == 1


@torch.inference_mode()
def test_two_runs_at_once_have_buffers_of_their_own(model):
    target = captured_target(model)
    one, two = target.new_cache(20), target.new_cache(20)
    for cache in (one, two):
        target.prefill(tiny.PROMPT, cache)
    places = [cache.tree_layers[0].keys.data_ptr() for cache in (one, two)]
    assert places[0] != places[1]
    del one, cache
    gc.collect()
    again = target.new_cache(20)
    assert (again.length, again.tree_layers[0].keys.data_ptr()) == (0, places[0])


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("tensor", ["keys", "values"])
def test_what_a_run_that_overflowed_left_does_not_reach_the_next_run(kernel, tensor):
    """A captured step reads a whole bucket, and NaN passes through a mask."""
    target, answers = captured_target(family_model("llama", kernel)), []
    for _ in range(2):
        cache = target.new_cache(20)
        with torch.inference_mode():
            target.prefill(tiny.PROMPT, cache)
            answers.append(target.verify(tiny.token_tree([-1, 0], [5, 6]), cache)[0].clone())
            for layer in cache.tree_layers:
                getattr(layer, tensor).fill_(torch.nan)
        del cache, layer
        gc.collect()
    assert torch.equal(*answers)


def test_what_an_overflow_left_does_not_reach_the_next_turn_of_a_conversation(model):
    """The next turn begins with rows that were committed before, so it would go on in the same memory."""
    engine, calls = engine_on(model), []

    def overflowing(module, given, embedded):
        calls.append(module)
        return embedded * torch.nan if len(calls) == 4 else None

    state = RunState(engine.target.new_cache(0))
    config = GenerationConfig.of(method="medusa", max_new_tokens=20, ignore_eos=True)
    hook = model.get_input_embeddings().register_forward_hook(overflowing)
    with pytest.raises(MedusaError, match="not a number"):
        list(engine.stream(tiny.PROMPT, config, state=state))
    hook.remove()
    assert len(calls) == 4
    steps = list(engine.stream(tiny.PROMPT, config, state=state))
    assert tiny.emitted(steps) == tiny.transformers_greedy(model, tiny.PROMPT, 20)


@torch.inference_mode()
def test_runs_that_begin_at_the_same_time_do_not_share_a_memory(model, monkeypatch):
    """The second one begins in another thread while the first one's cache is being made."""
    target = captured_target(model)
    target.prefill(tiny.PROMPT, target.new_cache(20))
    gc.collect()
    assert len(target.forward._idle) == 1
    caches = []

    def made(*given):
        if not caches:
            caches.append(None)
            with ThreadPoolExecutor(1) as other:
                caches[0] = other.submit(target.new_cache, 20).result()
        return TreeCache(*given)

    monkeypatch.setattr(captured_forward, "TreeCache", made)
    caches.append(target.new_cache(20))
    one, two = (cache.tree_layers[0] for cache in caches)
    assert one is not two
    assert one.is_initialized != two.is_initialized  # one of them has the memory that was free


@torch.inference_mode()
def test_room_can_grow_and_committed_rows_stay(model):
    target = captured_target(model)
    cache, prompt = target.new_cache(8), tiny.random_tokens(7, seed=1)
    target.prefill(prompt, cache)
    with pytest.raises(MedusaError, match="2 rows do not fit"):
        cache.require(2)
    target.verify(tiny.token_tree([-1], [5]), cache)  # captured where the rows were at first
    cache.reserve(600)
    assert cache.tree_layers[0].keys.shape[2] >= 600 + SIZES[-1]
    logits, _ = target.verify(tiny.token_tree([-1, 0], [5, 6]), cache)
    assert_close(logits[1], alone(model, [*prompt, 5, 6])[0], atol=1e-4, rtol=1e-4)


def test_the_cache_of_another_forward_is_refused(model):
    target, other = captured_target(model), Target(model)
    with pytest.raises(MedusaError, match="of another forward"):
        target.prefill([1, 2], other.new_cache(8))


def test_host_reads_are_noticed():
    with NoHostReads(), pytest.raises(HostReadError, match="on the host"):
        torch.ones(1).item()
