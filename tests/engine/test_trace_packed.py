"""The compact form of a trace, and a run's record by windows: the records come back, and both are small."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import zlib

import pytest
import tiny
from trace_factory import make_trace, put

from medusa_core.api import load
from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.trace.builder import TraceBuilder, write_trace
from medusa_core.trace.format import parse_trace, read_trace
from medusa_core.trace.packed import MOST_CHARACTERS, Tables, packed, packed_step, unpacked
from medusa_core.trace.run_record import WINDOW, RunRecord


def record(engine):
    config = GenerationConfig.of(
        max_new_tokens=30, tree="cartesian-4x2x2", acceptance="typical", temperature=0.7
    )
    return tiny.recorded(engine, config)


@pytest.fixture(scope="module")
def whole(engine):
    return record(engine).ended().packed()


def test_what_differs_between_siblings_comes_back(engine):
    trace = record(engine).finish()
    first, second = trace["steps"][0]["nodes"][1:3]
    assert first["parent"] == second["parent"]
    second["entropy"], second["threshold"], second["text"] = 1.25, None, "another text of the same token"
    trace["steps"][1]["nodes"][0]["p"] = 0.5
    assert unpacked(packed(trace)) == trace


def test_news_are_the_steps_in_their_order_each_once(engine):
    config = GenerationConfig.of(tree="cartesian-4x2x2", max_new_tokens=40)
    builder, told = TraceBuilder(engine, config, tiny.PROMPT), []
    builder.begin()
    for number, step in enumerate(engine.stream(tiny.PROMPT, config)):
        builder.add(step)
        if number % 3 == 2:
            told.append(builder.news())
    told.append(builder.news())
    assert builder.news()["steps"] == []
    all_of = builder.ended().packed()
    for name in ("tokens", "origins", "shapes", "reasons", "steps"):
        assert list(itertools.chain.from_iterable(news[name] for news in told)) == all_of[name]


@pytest.mark.parametrize("steps", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_400_steps_of_64_nodes_take_less_than_2_megabytes(tmp_path, steps):
    """Of a real run, by its share of them; 16 nodes take a third of that."""
    engine = load()
    # Sampling keeps fewer guesses, so that 400 steps fit the context.
    config = GenerationConfig.of(
        tree="vicuna_7b_stage2", temperature=1.0, seed=1, max_new_tokens=1000, ignore_eos=True
    )
    builder, _ = tiny.traced(engine, config, engine.encode("Once upon a time"), steps)
    write_trace(builder.ended(), tmp_path / "trace.json")
    read = read_trace(tmp_path / "trace.json")
    assert [len(read.steps), len(read.steps[0].nodes)] == [steps, 64]
    assert (tmp_path / "trace.json").stat().st_size < 2_000_000 * steps / 400


STEP = ("steps", 1)
BROKEN = {
    "no table": (lambda t: t.pop("shapes"), "shapes is missing"),
    "a table of other things": (put("tokens", to=7), "not the lists they should be"),
    "a token without a text": (put("tokens", 0, to=[5]), "is not a trace of version 3"),
    "a text that is too long": (put("tokens", 0, to=[5, "x" * (MOST_CHARACTERS + 1)]), "has 2001 characters"),
    "no such token": (put(*STEP, "tokens", 2, to=9999), "table does not hold"),
    "a token before the first": (put(*STEP, "tokens", 2, to=-1), "-1 is not a place"),
    "no such shape": (put(*STEP, "shape", to=99), "table does not hold"),
    "a shape that turns back": (put("shapes", 0, "parents", 2, to=7), "table does not hold"),
    "a node too few": (lambda t: t["steps"][1]["p"].pop(), "is not a trace of version 3"),
    "an entropy too many": (lambda t: t["steps"][1]["entropy"].append(1.0), "places where nodes are judged"),
    "a path off the tree": (put(*STEP, "path", to=[0, 99]), "path \\[0, 99\\]|table does not hold"),
    "a number that is none": (put(*STEP, "p", 2, to="high"), "Input should be a valid"),
    "numbers that fit no place": (lambda t: t["steps"][1]["after"]["log_z"].pop(), "cannot be those of"),
    "a step that is none": (put(*STEP, to=5), "not the lists they should be"),
    "another total": (put("output", "new_tokens", to=1), "both must be the same tokens"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_line(whole, name):
    change, words = BROKEN[name]
    trace = copy.deepcopy(whole)
    change(trace)
    with pytest.raises(MedusaError, match=words) as refused:
        parse_trace(json.dumps(trace).encode(), "the file")
    assert "\n" not in str(refused.value)


# --- A run's whole_run holds its steps by windows, and gives what a list of them would.


@pytest.fixture(scope="module")
def trace():
    found = make_trace([f"w{number % 50}" for number in range(800)], heads=3)
    assert 2 * WINDOW < len(found["steps"]) < 800
    return unpacked(packed(found))


@pytest.fixture(scope="module")
def whole_run(trace):
    tables = Tables()
    found = RunRecord({name: trace[name] for name in ("model", "config", "prompt")}, tables)
    for step in trace["steps"]:
        found.steps.add([packed_step(step, tables)])
    found.output = trace["output"]
    return found


def test_all_forms_are_those_of_the_whole_list(trace, whole_run):
    whole = packed(trace)
    assert whole_run.packed() == whole
    assert json.loads(b"".join(whole_run.texts())) == whole
    assert whole_run.trace() == trace
    steps = whole_run.trace()["steps"]
    assert len(steps) == len(trace["steps"])
    assert [steps[place] for place in (0, WINDOW, -1)] == [trace["steps"][place] for place in (0, WINDOW, -1)]
    assert steps[WINDOW - 1 : WINDOW + 1] == trace["steps"][WINDOW - 1 : WINDOW + 1]
    with pytest.raises(IndexError):
        steps[len(steps)]


def test_a_window_holds_its_steps_also_while_it_grows(trace):
    tables = Tables()
    whole_run = RunRecord({}, tables)
    all_of = [packed_step(step, tables) for step in trace["steps"]]
    for count, step in enumerate(all_of[: WINDOW + 3], 1):
        whole_run.steps.add([step])
        last = (count - 1) // WINDOW
        if count in (1, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 3):
            assert json.loads(zlib.decompress(whole_run.steps.window(last))) == all_of[last * WINDOW : count]
    for number in (-1, 2):
        with pytest.raises(IndexError, match="windows"):
            whole_run.steps.window(number)


def test_it_takes_a_small_part_of_its_text_and_goes_to_another_process(trace, whole_run):
    text = json.dumps([packed_step(step, Tables()) for step in trace["steps"]], separators=(",", ":"))
    assert whole_run.steps.size < len(text) / 2
    other = pickle.loads(pickle.dumps(whole_run))
    assert other.trace() == trace
    assert other.size == whole_run.size
