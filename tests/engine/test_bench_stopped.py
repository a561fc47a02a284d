"""A measurement under way: what is known of it by then, when it is stopped, and what others did meanwhile."""

from __future__ import annotations

from collections import namedtuple

import pytest
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.evaluation import other_work
from medusa_core.evaluation.bench import Bench
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.sweep import Sweep, cases_of
from medusa_core.evaluation.turns import Measurement, MethodLog, complete_part, measure_run

pytestmark = pytest.mark.usefixtures("slow_machine")

PROMPTS = [tiny.random_tokens(5, seed=seed) for seed in range(2)]
CONFIG = GenerationConfig.of(max_new_tokens=6, tree="cartesian-2x2", ignore_eos=True)
METHODS = ["none", "medusa"]


class Stop:
    """Says stop after so many questions."""

    def __init__(self, answers=0):
        self.left = answers

    def __call__(self):
        self.left -= 1
        return self.left < 0


def one_run(tokens=2):
    return Measurement([0] * tokens, 1.0, 1, {})


@pytest.mark.parametrize(
    ("done", "complete"),
    [
        (([2], [1]), [1]),  # the prompts of the first round that both have had
        (([2, 1], [2, 1]), [2]),  # only whole rounds, once there is one
        (([2, 2], [2, 1]), [2]),
        (([2, 2], [2, 2]), [2, 2]),
        (([1], [0]), None),
    ],
)
def test_methods_are_compared_by_what_all_have_done(done, complete):
    logs = {
        name: MethodLog([[one_run()] * count for count in counts])
        for name, counts in zip("ab", done, strict=True)
    }
    found = complete_part(logs)
    assert [list(map(len, log.rounds)) for log in found.values()] == ([complete] * 2 if complete else [])


def test_a_record_is_there_after_each_turn_of_all(engine):
    bench = Bench(engine, PROMPTS, METHODS, CONFIG, rounds=2)
    assert bench.record() is None
    known = []
    for turn in bench.turns():
        record = bench.record()
        known.append(None if record is None else (record["settings"]["prompts"], record["settings"]["runs"]))
        if turn.done == 8:
            assert record["methods"]["medusa"]["over_limit"] > 0
            assert record["machine"]["cores"] >= 1
    assert known == [None, (1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (2, 1), (2, 2)]


def test_stopped_within_a_run_the_run_counts_for_nothing(engine):
    cut = measure_run(engine, PROMPTS[0], CONFIG.changed(method="none"), Limit(Stop(2)))
    assert (cut.cut, cut.steps) == (True, 3)
    assert not measure_run(engine, PROMPTS[0], CONFIG.changed(method="none")).cut
    flag = []
    bench = Bench(engine, PROMPTS, METHODS, CONFIG, rounds=3)
    for turn in bench.turns(Limit(lambda: bool(flag))):
        if turn.done == 5:
            flag.append(True)
    assert bench.record()["settings"]["runs"] == 1


def test_a_sweep_that_is_stopped_keeps_the_values_that_were_measured(engine):
    flag = []
    cases = cases_of("nodes", engine, METHODS, CONFIG, PROMPTS, (1, 2, 4))
    sweep = Sweep(cases, 2)
    assert sweep.points() == []
    for turn in sweep.turns(Limit(lambda: bool(flag))):
        assert turn.name == f"{turn.case.value} {turn.case.config.method}"
        if turn.done == 2:
            flag.append(True)
    assert [point["value"] for point in sweep.points()] == [1, 2]
    assert list(Sweep(cases, 1).turns(Limit(lambda: True))) == []


def test_what_others_compute_is_counted_without_this_process(monkeypatch):
    times = namedtuple("times", "user nice system idle guest")
    own = namedtuple("own", "user system")
    now = {"everything": times(10.0, 0.0, 5.0, 100.0, 3.0), "own": own(4.0, 1.0), "clock": 50.0}
    monkeypatch.setattr(other_work.psutil, "cpu_times", lambda: now["everything"])
    monkeypatch.setattr(other_work.psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(other_work, "perf_counter", lambda: now["clock"])
    monkeypatch.setattr(other_work.psutil.Process, "cpu_times", lambda self: now["own"])
    others = other_work.OtherWork()
    now |= {"everything": times(16.0, 1.0, 6.0, 107.0, 4.0), "own": own(7.0, 1.0), "clock": 52.0}
    record = others.record()
    assert record == {"cores": 4, "other_cores_busy": 2.5}  # 8 s of all, 3 of our own, within 2 s
    assert other_work.busy_words(record).startswith("Other programs used 2.5 of 4 cores meanwhile")
    assert other_work.busy_words({"cores": 4, "other_cores_busy": 0.4}) == ""
