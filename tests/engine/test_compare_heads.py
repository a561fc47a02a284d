"""Plain decoding, fresh heads and new heads in turn: who runs when, what ends it early, what was gained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.evaluation.bench import BASELINE
from medusa_core.evaluation.compare_heads import FRESH, Gained, compare_heads, measure_gain
from medusa_core.evaluation.limits import Effort, Limit
from medusa_core.evaluation.measure_heads import HeadMeasurement
from medusa_core.evaluation.turns import Measurement, Turn, take_turns
from medusa_core.trees.budget import USUAL_NODES

PROMPTS = [[1, 2, 0, 3], [5, 0, 7], [4, 6]]
EFFORT = Effort(counted_tokens=16, sizes=(1, 6), rounds=1, round_tokens=12)
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


def gained(engine, effort=EFFORT, stop_at=lambda record: False):
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
    found, _ = gained(engine)
    draft = medusa_draft(found.engine)
    assert len(draft.accuracies) == draft.heads.count
    assert draft.default_tree.size == found.gain.nodes
    assert found.gain.prompts == len(PROMPTS)
    # Which tree pays depends on the machine, and in the smallest ones both may keep as many tokens.
    assert found.gain.tokens_per_step >= found.gain.fresh_tokens_per_step > 1
    assert found.gain.speedup > 0
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
    found, before = gained(engine, replace(EFFORT, seconds=0.0))
    assert found.gain.prompts == 1
    assert [turn.name for turn in before if isinstance(turn, Turn)] == [BASELINE, MEDUSA, FRESH]
