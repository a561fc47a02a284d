"""The simulated gain behaves as in figures 21 to 23 of the paper, the memory wall as its sources derive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa_core.errors import MedusaError
from medusa_core.hardware.devices import find_device, known_devices
from medusa_core.hardware.operators import (
    ADDED,
    OVERLAPPED,
    Work,
    longest_text,
    memory_over_arithmetic,
    operators,
    step_seconds,
    timed,
)
from medusa_core.hardware.shapes import known_shapes
from medusa_core.hardware.simulation import BATCHES, CONTEXTS, best, gains, logarithmic

A100, LLAMA = known_devices()["a100"], known_shapes()["llama-7b"]
ALL = range(2, 257)


def test_acceleration_is_two_to_the_base_and_never_below_one():
    assert logarithmic(64) == pytest.approx(2.862)
    assert logarithmic(1) == logarithmic(2) == 1.0


def test_there_is_a_best_number_of_candidates():
    """Figure 21: near 64; no overlap gives a little less, full overlap more."""
    assert 40 <= best(gains(LLAMA, A100, cost=ADDED, candidates=ALL)).candidates <= 64
    assert 128 <= best(gains(LLAMA, A100, cost=OVERLAPPED, candidates=ALL)).candidates <= 192


def test_the_gain_shrinks_with_the_batch_and_ends_above_32():
    speedups = [best(gains(LLAMA, A100, batch, candidates=ALL)).speedup for batch in BATCHES]
    assert speedups == sorted(speedups, reverse=True)
    pays = {batch for batch, speedup in zip(BATCHES, speedups, strict=True) if speedup > 1}
    assert pays == {1, 2, 4, 8, 16, 32}


def test_a_longer_text_lowers_the_gain_and_hardly_moves_the_best_number():
    found = [best(gains(LLAMA, A100, 4, context, candidates=ALL)) for context in CONTEXTS]
    speedups = [each.speedup for each in found]
    assert speedups == sorted(speedups, reverse=True)
    counts = [each.candidates for each in found]
    assert max(counts) - min(counts) <= 4


def test_a_step_takes_at_least_what_its_bytes_and_its_arithmetic_take():
    work = Work(1, 64, 1024)
    found = operators(LLAMA, work)
    seconds = step_seconds(LLAMA, work, A100)
    assert seconds >= sum(each.calls * each.flops for each in found) / A100.peak
    assert seconds >= sum(each.calls * each.moved for each in found) / A100.bandwidth * (1 - 1e-12)
    assert step_seconds(LLAMA, work, A100, ADDED) > seconds
    assert all(each.memory_bound for each in timed(operators(LLAMA, Work()), A100))


def test_shared_keys_move_less_and_compute_the_same():
    ratios = [memory_over_arithmetic(replace(LLAMA, kv_heads=count), 16, 4096) for count in (32, 8, 1)]
    assert ratios == sorted(ratios, reverse=True)
    work = Work(4, 1, 1024)
    flops = {count: operators(replace(LLAMA, kv_heads=count), work)[3].flops for count in (32, 1)}
    assert flops[32] == flops[1]


def test_memory_over_arithmetic_goes_as_the_sources_derive():
    """MHA as s/h + 1/b: it grows with the text and falls with the batch; MQA hardly grows."""
    ratio = memory_over_arithmetic
    assert ratio(LLAMA, 64, 8192) > 2 * ratio(LLAMA, 64, 1024)
    assert ratio(LLAMA, 1, 64) > 4 * ratio(LLAMA, 64, 64)
    shared = replace(LLAMA, kv_heads=1)
    assert ratio(shared, 64, 8192) < 0.1 * ratio(LLAMA, 64, 8192)


def test_what_fits_beside_the_weights():
    llama33 = known_shapes()["llama-33b"]
    assert longest_text(llama33, known_devices()["a40"], 1) < 0
    free = (80e9 - 2 * LLAMA.parameters) / (512 * 1024)
    assert longest_text(LLAMA, A100, 1) == int(free)
    shared = replace(LLAMA, kv_heads=8)
    assert longest_text(shared, A100, 1) == int((80e9 - 2 * shared.parameters) / (128 * 1024))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Work(batch=0), "batch is 0"),
        (lambda: Work(context=0), "context is 0"),
        (lambda: Work(tokens=10**9), "tokens is 1000000000: give a whole number from 1 to 65,536"),
        (lambda: find_device("abacus"), "use this or one of a100"),
        (lambda: replace(LLAMA, kv_heads=5), "do not divide 32"),
    ],
)  # fmt: skip
def test_bad_settings_get_a_sentence(make, words):
    with pytest.raises(MedusaError, match=words):
        make()
