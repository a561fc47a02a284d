"""Finished runs by bytes: the newest of each page, the pages used last, and a sentence for the others."""

from __future__ import annotations

import gc
import json
import random

import pytest

from medusa_core.errors import MedusaError
from ui.serving.kept_runs import KeptRuns, RunSlot


def trace(seed=0, numbers=5000):
    """A record of about the same packed size whatever the seed."""
    draw = random.Random(seed)
    return {"seed": seed, "steps": [draw.random() for _ in range(numbers)], "text": "ein Übel \ud800 <b>"}


def test_a_page_has_its_newest_run_and_no_older_one():
    runs, slot = KeptRuns(), RunSlot()
    assert runs.trace(slot) is None
    runs.keep(slot, trace(1))
    size = runs.bytes
    for seed in range(2, 30):
        runs.keep(slot, trace(seed))
    assert runs.trace(slot) == trace(29)
    assert size * 0.9 < runs.bytes < size * 1.1
    runs.drop(slot)
    assert runs.bytes == 0
    assert runs.trace(slot) is None


def test_all_pages_stay_within_the_bytes_and_the_one_used_longest_ago_is_told():
    runs = KeptRuns(most_bytes=250_000)
    slots = [RunSlot() for _ in range(40)]
    for number, slot in enumerate(slots):
        runs.keep(slot, trace(number))
        assert runs.trace(slots[0]) == trace(0)  # used again and again
        assert runs.bytes <= 250_000
    assert runs.bytes > 100_000
    assert runs.trace(slots[-1]) == trace(39)
    with pytest.raises(MedusaError, match="gave the memory of this run to others"):
        runs.trace(slots[1])


def test_a_run_larger_than_all_memory_is_not_kept():
    runs, slot = KeptRuns(most_bytes=1000), RunSlot()
    runs.keep(slot, trace())
    assert runs.bytes == 0
    with pytest.raises(MedusaError, match="Run it again"):
        runs.trace(slot)


def test_a_page_that_goes_takes_its_run_along():
    runs, slots = KeptRuns(), [RunSlot() for _ in range(5)]
    for number, slot in enumerate(slots):
        runs.keep(slot, trace(number))
    del slots[1:], slot
    gc.collect()
    assert runs.bytes < 2 * len(json.dumps(trace(0)))
    assert runs.trace(slots[0]) == trace(0)
