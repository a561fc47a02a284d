"""Counting right guesses, timing trees, and heads in turn: whole, stopped, and cut short by the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import BASELINE
from medusa_core.evaluation.compare_heads import FRESH, Gained, compare_heads, measure_gain
from medusa_core.evaluation.head_accuracy import count_heads
from medusa_core.evaluation.limits import COUNTING, STOPPED, TIME_IS_UP, TIMING, Effort, Limit
from medusa_core.evaluation.measure_heads import HeadMeasurement, measure_heads
from medusa_core.evaluation.turns import Measurement, Turn, take_turns
from medusa_core.trees.budget import USUAL_NODES, LatencyPoint, best_budget, best_tree, budgets
from medusa_core.trees.search import search_tree

PROMPTS = [[1, 2, 0, 3], [5, 0, 7], [4, 6]]
EFFORT = Effort(counted_tokens=16, sizes=(1, 2, 6), rounds=2, round_tokens=12)


class Stop:
    """Says yes once it was pressed."""

    def __init__(self):
        self.pressed = False

    def __call__(self):
        return self.pressed


def stopped_at(engine, part, done, effort=EFFORT):
    """All records when Stop is pressed at that one."""
    stop, records = Stop(), []
    for found in measure_heads(engine, PROMPTS, effort, Limit(stop)):
        records.append(found)
        stop.pressed |= (found.part, found.done) == (part, done)
    return records


def test_every_prompt_is_counted_and_every_size_timed(engine):
    records = list(measure_heads(engine, PROMPTS, EFFORT))
    assert [(found.part, found.done, found.total) for found in records] == [
        *((COUNTING, number, 3) for number in (1, 2, 3)), *((TIMING, number, 6) for number in range(1, 7)),
    ]  # fmt: skip
    *_, counted = count_heads(engine, PROMPTS, 16)
    assert records[-1].accuracies == counted
    assert [found.rounds for found in records[3:]] == [0, 0, 1, 1, 1, 2]
    assert [point.nodes for point in records[-1].latency] == [1, 2, 6]
    record = records[-1].record(engine)
    assert list(record) == ["base", "positions", "accuracies", "latency", "machine"]
    assert record["machine"]["dtype"] == "float32"


def test_known_accuracies_are_not_counted_again_and_choose_the_trees(engine):
    flat = [[0.9, 0.0, 0.0]] + [[0.0] * 3] * (tiny.HEADS - 1)
    records = list(measure_heads(engine, PROMPTS, EFFORT, known=flat))
    assert {found.part for found in records} == {TIMING}
    assert records[-1].accuracies.shares == flat
    sized = with_heads(engine, accuracies=flat)
    assert [point.nodes for point in records[-1].latency] == [
        1, *(nodes for nodes in (2, 6) if sized.drafts["medusa"].budget_tree(nodes - 1).size == nodes),
    ]  # fmt: skip


def test_without_rounds_nothing_is_timed(engine):
    *_, found = measure_heads(engine, PROMPTS, Effort(16, rounds=0))
    assert (found.part, found.done, found.latency) == (COUNTING, 3, [])
    assert "latency" not in found.record(engine)
    assert len(found.best_tree.choices) == USUAL_NODES - 1
    assert found.best_tree.tokens_per_second is None


@pytest.mark.parametrize("done", [1, 2, 3])
def test_stopped_while_counting_it_ends_there_and_times_nothing(engine, done):
    records = stopped_at(engine, COUNTING, done)
    assert [(found.part, found.done) for found in records] == [(COUNTING, n) for n in range(1, done + 1)]
    *_, counted = count_heads(engine, PROMPTS[:done], 16)
    assert records[-1].accuracies == counted


@pytest.mark.parametrize(("done", "rounds"), [(1, 0), (2, 0), (3, 1), (5, 1)])
def test_stopped_while_timing_complete_rounds_are_kept(engine, done, rounds):
    found = stopped_at(engine, TIMING, done)[-1]
    assert (found.part, found.done, found.rounds) == (TIMING, done, rounds)
    assert [point.nodes for point in found.latency] == ([1, 2, 6] if rounds else [])
    assert len(found.best_tree.choices) == (best_nodes(found) if rounds else USUAL_NODES) - 1


def best_nodes(found):
    return best_budget(budgets(found.accuracies.shares, found.latency)).nodes


def test_out_of_time_each_part_still_says_something(engine):
    """No second is given: one prompt is counted, and every size has one turn."""
    effort = Effort(16, (1, 2, 6), rounds=3, round_tokens=12, seconds=0.0)
    records = list(measure_heads(engine, PROMPTS, effort))
    assert [found.part for found in records] == [COUNTING, TIMING, TIMING, TIMING]
    assert (records[-1].rounds, len(records[-1].latency)) == (1, 3)


def test_closed_it_ends(engine):
    records = measure_heads(engine, PROMPTS, EFFORT)
    assert next(records).done == 1
    records.close()
    assert list(records) == []


def test_prompts_and_heads_are_needed(engine, model):
    with pytest.raises(MedusaError, match="there are no prompts"):
        next(measure_heads(engine, [], EFFORT))
    with pytest.raises(MedusaError, match="has no heads"):
        next(measure_heads(tiny.build_engine(model, None), PROMPTS, EFFORT))


def test_the_best_tree_is_that_of_the_best_size():
    accuracies = [[0.6, 0.2, 0.1], [0.5, 0.2, 0.05]]
    timed = [LatencyPoint(nodes=nodes, step_ms=ms) for nodes, ms in ((1, 10), (4, 11), (8, 40))]
    best = best_budget(budgets(accuracies, timed))
    found = best_tree(accuracies, timed)
    assert found.choices == search_tree(accuracies, best.nodes - 1).choices
    assert found.tokens_per_second == best.tokens_per_second
    plain = best_tree(accuracies, timed[:1])
    assert (len(plain.choices), plain.tokens_per_second) == (USUAL_NODES - 1, None)


def test_a_limit_says_what_ended_it():
    stop = Stop()
    limit = Limit(stop)
    assert (limit.why, limit.reached()) == ("", False)
    assert limit.within(60).within(1000).left <= 60
    over = limit.within(0)
    assert (over.why, over.stopped, over.left) == (TIME_IS_UP, False, 0)
    stop.pressed = True
    assert (over.why, over.stopped) == (STOPPED, True)


# --- Plain decoding, fresh heads and new heads in turn: who runs when, what ends it early, what was gained.


SMALL_EFFORT = Effort(counted_tokens=16, sizes=(1, 6), rounds=1, round_tokens=12)
CONFIG = GenerationConfig(max_new_tokens=12)


def runners(names, seen):
    def run(name, prompt):
        seen.append(name)
        return Measurement([0] * 4, 2.0, 2, {})

    return {name: lambda prompt, name=name: run(name, prompt) for name in names}


def test_turns_rotate_and_some_come_in_the_first_round_only():
    seen = []
    turns = list(take_turns(runners("abc", seen), [[1], [2]], rounds=2, once="c"))
    assert "".join(seen) == "abc" + "abc" + "bca" + "ba" + "ab"  # once unmeasured, then two rounds
    assert [turn.done for turn in turns] == list(range(1, 11))
    assert {turn.total for turn in turns} == {10}
    assert [turn.done for turn in turns if turn.last] == [3, 6, 8, 10]
    assert [[len(part) for part in log.rounds] for log in turns[-1].logs.values()] == [[2, 2], [2, 2], [2]]
    assert turns[-1].logs["a"].tokens_per_step() == 2


@pytest.mark.parametrize(("captured", "wanted"), [(False, ["long"]), (True, ["long", "ab", "c"])])
def test_the_longest_prompt_warms_up_and_with_graphs_every_other_one_too(captured, wanted):
    seen = []
    prompts = [list(text) for text in ("ab", "long", "c", "ab")]

    def run(prompt):
        seen.append("".join(prompt))
        return Measurement([0] * 4, 2.0, 2, {})

    list(take_turns({"a": run}, prompts, 1, captured=captured))
    assert seen == [*wanted, "ab", "long", "c", "ab"]


@pytest.mark.parametrize("runs", [0, 1, 4, 7])
def test_stopped_nobody_runs_again(runs):
    seen = []
    limit = Limit(lambda: len(seen) >= runs)
    turns = list(take_turns(runners("abc", seen), [[1], [2]], 2, limit))
    assert len(seen) == runs
    assert len(turns) == max(0, runs - 3)


def test_out_of_time_all_have_had_the_same_prompts():
    seen = []
    turns = list(take_turns(runners("abc", seen), [[1], [2]], 2, Limit().within(0), warm_up=False))
    assert "".join(seen) == "abc"
    assert turns[-1].last


def test_fresh_heads_stand_beside_the_trained_ones(engine):
    *_, turn = compare_heads(engine, PROMPTS, CONFIG, rounds=2)
    assert {name: len(log.rounds) for name, log in turn.logs.items()} == {BASELINE: 2, MEDUSA: 2, FRESH: 1}
    plain, medusa, fresh = (turn.logs[name] for name in (BASELINE, MEDUSA, FRESH))
    assert [run.tokens for run in fresh.rounds[0]] == [run.tokens for run in plain.rounds[0]]
    assert [run.tokens for run in medusa.rounds[0]] == [run.tokens for run in plain.rounds[0]]
    assert plain.tokens_per_step() == 1
    assert medusa.tokens_per_step() > fresh.tokens_per_step()


def gained(engine, effort=SMALL_EFFORT, stop_at=lambda record: False):
    """What was gained, and the records before it; Stop is pressed at one of them."""
    pressed, records = [], []
    for record in measure_gain(engine, PROMPTS, effort, 12, Limit(lambda: bool(pressed))):
        records.append(record)
        if stop_at(record):
            pressed.append(True)
    *before, last = records
    assert isinstance(last, Gained)
    return last, before


def test_the_gain_is_measured_with_the_tree_that_fits(engine):
    found, (*_, turn) = gained(engine)
    draft = medusa_draft(found.engine)
    assert len(draft.accuracies) == draft.heads.count
    assert draft.default_tree.size == found.gain.nodes == draft.fastest.topology.size  # "auto" takes it
    assert found.gain.prompts == len(PROMPTS)
    # Which tree pays depends on the machine, and in the smallest ones both may keep as many tokens.
    assert found.gain.tokens_per_step >= found.gain.fresh_tokens_per_step > 1
    plain, own = (turn.logs[name].mean_step("total") for name in (BASELINE, MEDUSA))
    assert found.gain.tokens_per_step / found.gain.speedup == pytest.approx(own / plain)
    assert found.engine.target is engine.target


@pytest.mark.parametrize("part", ["counting", "timing", "turns"])
def test_stopped_the_heads_are_usable_with_what_is_known(engine, part):
    def here(record):
        return part == (record.part if isinstance(record, HeadMeasurement) else "turns")

    found, before = gained(engine, stop_at=here)
    assert found.gain is None
    assert here(before[-1])
    assert sum(map(here, before)) == 1
    draft = medusa_draft(found.engine)
    assert draft.accuracies
    if part != "turns":
        assert draft.default_tree.size == USUAL_NODES


def test_out_of_time_there_is_a_gain_of_one_prompt(engine):
    found, before = gained(engine, replace(SMALL_EFFORT, seconds=0.0))
    assert found.gain.prompts == 1
    assert [turn.name for turn in before if isinstance(turn, Turn)] == [BASELINE, MEDUSA, FRESH]
