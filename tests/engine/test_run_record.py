"""A run's record holds its steps by windows, and gives what a list of them would."""

from __future__ import annotations

import json
import pickle
import zlib

import pytest
from trace_factory import make_trace

from medusa_core.trace.packed import Tables, packed, packed_step, unpacked
from medusa_core.trace.run_record import WINDOW, RunRecord


@pytest.fixture(scope="module")
def trace():
    found = make_trace([f"w{number % 50}" for number in range(800)], heads=3)
    assert 2 * WINDOW < len(found["steps"]) < 800
    return unpacked(packed(found))


@pytest.fixture(scope="module")
def record(trace):
    tables = Tables()
    found = RunRecord({name: trace[name] for name in ("model", "config", "prompt")}, tables)
    for step in trace["steps"]:
        found.steps.add([packed_step(step, tables)])
    found.output = trace["output"]
    return found


def test_all_forms_are_those_of_the_whole_list(trace, record):
    whole = packed(trace)
    assert record.packed() == whole
    assert json.loads(b"".join(record.texts())) == whole
    assert record.trace() == trace
    steps = record.trace()["steps"]
    assert len(steps) == len(trace["steps"])
    assert [steps[place] for place in (0, WINDOW, -1)] == [trace["steps"][place] for place in (0, WINDOW, -1)]
    assert steps[WINDOW - 1 : WINDOW + 1] == trace["steps"][WINDOW - 1 : WINDOW + 1]
    with pytest.raises(IndexError):
        steps[len(steps)]


def test_a_window_holds_its_steps_also_while_it_grows(trace):
    tables = Tables()
    record = RunRecord({}, tables)
    all_of = [packed_step(step, tables) for step in trace["steps"]]
    for count, step in enumerate(all_of[: WINDOW + 3], 1):
        record.steps.add([step])
        last = (count - 1) // WINDOW
        if count in (1, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 3):
            assert json.loads(zlib.decompress(record.steps.window(last))) == all_of[last * WINDOW : count]
    for number in (-1, 2):
        with pytest.raises(IndexError, match="windows"):
            record.steps.window(number)


def test_it_takes_a_small_part_of_its_text_and_goes_to_another_process(trace, record):
    assert record.steps.size < record.steps.text_bytes / 2
    other = pickle.loads(pickle.dumps(record))
    assert other.trace() == trace
    assert other.size == record.size
