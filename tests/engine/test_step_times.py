"""The tree "auto": step times that are measured, remembered, and choose it; and when they are not used."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from medusa_core.api import generate
from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import NAME, medusa_draft, with_heads
from medusa_core.evaluation import step_times
from medusa_core.evaluation.limits import Limit
from medusa_core.evaluation.step_times import (
    auto_tree_words,
    faster_tree,
    lacks_step_times,
    measure_step_times,
    with_known_step_times,
    with_step_times,
)
from medusa_core.loading.tuning import cache_folder, keep, machine_key, recall
from medusa_core.trees.budget import LatencyPoint, best_tree
from medusa_core.trees.tree import Topology

ACCURACIES = [[0.7, 0.2, 0.05], [0.5, 0.2, 0.1]]
FLAT = [LatencyPoint(nodes=size, step_ms=5 + size / 100) for size in (1, 8, 16, 64)]
STEEP = [LatencyPoint(nodes=size, step_ms=float(size)) for size in (1, 2, 4, 8)]


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Measurements are allowed, and kept in a folder of the test."""
    monkeypatch.delenv("MEDUSA_MEASURE", raising=False)
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def known_heads(engine):
    """A tiny engine whose heads have known accuracies."""
    return with_heads(engine, accuracies=ACCURACIES)


def remember(engine, points):
    keep(step_times._key(engine), [point.model_dump(exclude_none=True) for point in points])


def test_what_is_kept_is_found_again_by_the_same_key_alone(measuring):
    keep({"kind": "a"}, [1, 2])
    assert recall({"kind": "a"}) == [1, 2]
    assert recall({"kind": "b"}) is None
    assert [file.suffix for file in cache_folder().iterdir()] == [".json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"key": {"kind": "a"}}', '{"key": 3, "value": 1}', "[" * 5000]
)
def test_a_damaged_file_counts_as_absent(measuring, content):
    keep({"kind": "a"}, 1)
    (file,) = cache_folder().iterdir()
    file.write_text(content)
    assert recall({"kind": "a"}) is None


def test_a_folder_that_cannot_be_written_stops_nothing(measuring):
    measuring.write_text("a file where the folder should be")
    keep({"kind": "a"}, 1)
    assert recall({"kind": "a"}) is None


def test_remembered_times_choose_the_tree_that_promises_most(measuring, known_heads):
    default = medusa_draft(known_heads).tree("default")
    assert medusa_draft(known_heads).tree("auto") == default
    words = auto_tree_words(known_heads, GenerationConfig())
    assert words.endswith("as shipped with the heads: this machine is too busy to time its steps")
    for points in (FLAT, STEEP):
        remember(known_heads, points)
        engine = with_known_step_times(known_heads)
        expected = best_tree(ACCURACIES, points)
        assert set(medusa_draft(engine).tree("auto").choices) == set(expected.choices)
        assert medusa_draft(engine).tree("default") == default
        assert f"{len(expected.choices) + 1} nodes, the fastest here" in auto_tree_words(
            engine, GenerationConfig()
        )
    assert medusa_draft(engine).tree("auto").size < default.size  # a steep curve wants a small tree


def test_a_run_takes_the_chosen_tree_and_gives_the_same_greedy_text(measuring, known_heads):
    plain = generate(known_heads, [1, 2, 3], max_new_tokens=24, trace=True)
    remember(known_heads, STEEP)
    chosen = generate(with_known_step_times(known_heads), [1, 2, 3], max_new_tokens=24, trace=True)
    assert chosen.token_ids == plain.token_ids
    assert len(chosen.trace.config.tree) < len(plain.trace.config.tree)


def test_times_of_another_setting_are_not_used(measuring, known_heads, monkeypatch):
    remember(known_heads, FLAT)
    assert not lacks_step_times(with_known_step_times(known_heads))
    monkeypatch.setattr(known_heads.target, "threads", 64)
    assert lacks_step_times(with_known_step_times(known_heads))


@pytest.mark.parametrize("value", [[{"nodes": 0, "step_ms": 1}], [{"nodes": 4, "step_ms": -1}], "text", [3]])
def test_a_file_of_another_hand_is_not_used(measuring, known_heads, value):
    keep(step_times._key(known_heads), value)
    assert lacks_step_times(with_known_step_times(known_heads))


def test_nothing_is_measured_or_used_where_the_owner_forbids_it(measuring, known_heads, monkeypatch):
    remember(known_heads, FLAT)
    monkeypatch.setenv("MEDUSA_MEASURE", "0")
    assert with_step_times(known_heads) is known_heads


def test_heads_of_unknown_accuracy_and_bare_models_are_not_measured(measuring, engine):
    unknown = with_heads(engine, accuracies=None)
    assert with_step_times(unknown) is unknown
    assert not lacks_step_times(unknown)
    assert not measuring.exists()


def test_a_run_with_another_tree_hears_of_the_one_that_step_times_chose(known_heads):
    own = GenerationConfig.of(tree=Topology.from_choices([[0], [1], [0, 0]]))
    assert faster_tree(known_heads, own) is None
    timed = with_heads(known_heads, latency=tuple(FLAT))
    assert faster_tree(timed, own) == medusa_draft(timed).tree("auto").size > 4
    assert faster_tree(timed, own.changed(tree="auto")) is None
    assert faster_tree(timed, own.changed(method="none")) is None


def test_steps_of_the_engines_loop_are_timed_for_each_size(measuring, known_heads):
    points = measure_step_times(known_heads)
    sizes = [point.nodes for point in points]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert max(sizes) > 8
    assert all(point.step_ms > 0 and point.steps > 1 for point in points)


def test_capturing_a_graph_is_no_time_of_a_step(measuring, known_heads, monkeypatch):
    choice = known_heads.target.choice
    monkeypatch.setattr(known_heads.target, "choice", replace(choice, captured=True))
    timed, plain = set(), step_times._timed

    def captured_first(engine, prompt, config, state):
        times = plain(engine, prompt, config, state)
        if id(config) not in timed:
            timed.add(id(config))
            times[0] = 1e6  # ms
        return times

    monkeypatch.setattr(step_times, "_timed", captured_first)
    assert all(point.step_ms < 1e5 for point in measure_step_times(known_heads, seconds=0))


@pytest.mark.parametrize(("ms", "seconds", "sizes"), [(2, 1, 5), (20, 2, 5), (60, 4, 4), (900, 4, 3)])
def test_a_slow_machine_times_fewer_sizes_often_enough(
    measuring, known_heads, monkeypatch, ms, seconds, sizes
):
    """By a clock that only steps move on, each by as many ms as its tree's nodes and ``ms`` say."""
    now = [0.0]

    def timed(engine, prompt, config, state):
        tree = config.options.get("tree")
        each = ms + 0.05 * ms * ((tree.size if tree else 1) - 1)
        steps = [each] if each > step_times._LONG else [each] * step_times._STEPS
        now[0] += sum(steps) / 1000
        return steps

    monkeypatch.setattr(step_times, "_timed", timed)
    points = measure_step_times(known_heads, limit=Limit(clock=lambda: now[0]))
    assert step_times._is_steady(points)
    assert len(points) == sizes
    assert now[0] < seconds


def test_a_measurement_that_is_stopped_ends_at_once(measuring, known_heads):
    assert not measure_step_times(known_heads, limit=Limit(stop=lambda: True))


def test_a_measurement_on_an_idle_machine_is_kept_and_used_at_the_next_start(
    measuring, known_heads, monkeypatch
):
    for steady, computed in ((False, 100.0), (True, 0.01)):  # times spread, or others had the core meanwhile
        monkeypatch.setattr(step_times, "_is_steady", lambda points, steady=steady: steady)
        monkeypatch.setattr(step_times, "thread_time", iter([0.0, computed]).__next__)
        assert lacks_step_times(with_step_times(known_heads))
        assert not measuring.exists()
    monkeypatch.setattr(step_times, "thread_time", iter([0.0, 100.0]).__next__)
    engine = with_step_times(known_heads)
    found = with_known_step_times(known_heads)
    assert medusa_draft(found).latency == medusa_draft(engine).latency
    (file,) = measuring.iterdir()
    assert json.loads(file.read_text())["key"]["processor"] == machine_key()["processor"]
    assert medusa_draft(found).tree("auto").size >= 2
    assert NAME in found.drafts
