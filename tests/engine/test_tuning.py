"""Threads by measurement: what was found is used, kept and said; a busy machine changes nothing."""

from __future__ import annotations

import itertools

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.files import whole_file
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.loading import tuning
from medusa_core.model.target import Target
from medusa_core.model.threads import cpu_threads, each_within
from medusa_core.trace.builder import TraceBuilder


@pytest.fixture(autouse=True)
def measuring(monkeypatch, tmp_path):
    """Measurements are allowed, kept in a folder of the test, and the user has set no number of threads."""
    monkeypatch.delenv("MEDUSA_MEASURE", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path))
    before = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch):
    """A clock for ``_fastest`` whose calls take the seconds that the test says."""
    ticks = []

    def read():
        return float(sum(ticks))

    monkeypatch.setattr(tuning, "perf_counter", read)
    return ticks


def fill_the_disk(new):
    new.write_text("half of it")
    raise OSError("the disk is full")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "made" / "kept.json"
    with whole_file(file) as new:
        new.write_text("old")
    with pytest.raises(OSError, match="full"), whole_file(file) as new:
        fill_the_disk(new)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert (file.read_text(), [*file.parent.iterdir()]) == ("old", [file])


def call(clock, *seconds):
    """A candidate whose calls take these seconds, over and over."""
    turns = itertools.cycle(seconds)
    return lambda: clock.append(next(turns))


def test_the_fastest_call_of_each_candidate_counts(clock):
    times = tuning._fastest({"a": call(clock, 0.01), "b": call(clock, 0.02, 0.021)})
    assert times == pytest.approx({"a": 0.01, "b": 0.02})


def test_a_busy_machine_is_told_by_its_spread(clock):
    assert tuning._fastest({"a": call(clock, 0.01), "b": call(clock, 0.02, 0.09, 0.08)}) is None


def test_what_takes_too_long_is_given_up(clock):
    assert tuning._fastest({"a": call(clock, 0.4), "b": call(clock, 0.4)}) is None
    assert sum(clock) < 2 * tuning._SECONDS


@pytest.fixture
def target(library):
    """A tiny target on the forward in C."""
    return tiny.target_in_c(tiny.build_model(tiny.tiny_config()), library)


def test_threads_are_chosen_kept_and_used(monkeypatch, measuring, target):
    torch.set_num_threads(4)
    for winner, expected in ((1, 1), (2, 2), (4, None)):
        for file in measuring.iterdir():
            file.unlink()
        monkeypatch.setattr(
            tuning, "_fastest", lambda calls, best=winner: {n: 1.0 if n == best else 2.0 for n in calls}
        )
        assert tuning.fastest_threads(target.forward) == expected
        monkeypatch.setattr(tuning, "_fastest", None)  # a kept result is read, not measured anew
        assert tuning.fastest_threads(target.forward) == expected
        assert torch.get_num_threads() == 4


def test_about_as_fast_takes_more_threads_and_a_busy_machine_takes_torchs(monkeypatch, measuring, target):
    torch.set_num_threads(4)
    monkeypatch.setattr(tuning, "_fastest", lambda calls: None)
    assert tuning.fastest_threads(target.forward) is None
    assert not list(measuring.iterdir())
    monkeypatch.setattr(tuning, "_fastest", lambda calls: {4: 2.0, 2: 1.05, 1: 1.0})
    assert tuning.fastest_threads(target.forward) == 2


def test_a_large_model_is_not_timed(monkeypatch, measuring, target):
    torch.set_num_threads(2)
    monkeypatch.setattr(tuning, "_TIMED_BYTES", 0)
    monkeypatch.setattr(tuning, "_fastest", None)
    assert tuning.fastest_threads(target.forward) is None


def test_real_forwards_are_timed_on_each_number_of_threads(target):
    torch.set_num_threads(2)
    for count in (2, 1):
        tuning._forward(target.forward, count)()
        assert torch.get_num_threads() == count


def test_threads_that_the_user_set_stay(monkeypatch, target):
    torch.set_num_threads(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(tuning, "_fastest", None)
    assert tuning.fastest_threads(target.forward) is None


def test_the_choice_is_said(library):
    torch.set_num_threads(2)
    target = Target(tiny.build_model(tiny.tiny_config()))
    choose_forward(target, threads_for=lambda forward: 1, library=library)
    assert target.threads == 1
    assert target.choice.words().endswith("1 thread")
    assert torch.get_num_threads() == 2


@pytest.fixture
def counts(monkeypatch):
    """Threads of torch and of the C at each forward."""
    seen, verify = [], Target.verify_all

    def counting(target, *arguments):
        own = target.library.most_threads if target.choice.native else None
        seen.append((torch.get_num_threads(), own))
        return verify(target, *arguments)

    monkeypatch.setattr(Target, "verify_all", counting)
    return seen


def test_a_run_has_its_threads_while_it_computes_and_its_reader_the_usual_ones(engine, monkeypatch, counts):
    torch.set_num_threads(3)
    monkeypatch.setattr(engine.target, "threads", 2)
    first, second = (engine.stream(tiny.PROMPT, GenerationConfig(max_new_tokens=24)) for _ in range(2))
    for run in (first, second, first, second):
        next(run)
        assert torch.get_num_threads() == 3
        if engine.target.choice.native:
            assert engine.target.library.count is None
    first.close()
    torch.set_num_threads(4)  # the reader's own choice stays
    next(second)
    second.close()
    assert torch.get_num_threads() == 4
    assert set(counts) <= {(1, 2), (2, None)}
    assert counts


def test_a_trace_is_made_on_one_thread_so_that_none_spins_beside_the_next_forward(engine, monkeypatch):
    """Where several threads share a tensor, torch's own ones spin for milliseconds after it."""
    torch.set_num_threads(2)
    seen, several = [], torch.cat

    def joined(*parts, **how):
        seen.append(torch.get_num_threads())
        return several(*parts, **how)

    monkeypatch.setattr(torch, "cat", joined)
    config = GenerationConfig(max_new_tokens=8)
    builder = TraceBuilder(engine, config, tiny.PROMPT)
    for step in engine.stream(tiny.PROMPT, config):
        seen.clear()
        builder.add(step)
        builder.news()
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2


def test_torch_keeps_to_one_thread_while_c_has_the_others(library):
    torch.set_num_threads(2)
    target = Target(tiny.build_model(tiny.tiny_config()))
    choose_forward(target, threads_for=lambda forward: None, library=library)
    for _ in range(2):
        with target.running():
            assert (torch.get_num_threads(), library.count, library.most_threads) == (1, 2, 2)
            with target.running():  # a draft model on the same library
                assert (torch.get_num_threads(), library.most_threads) == (1, 2)
            assert (torch.get_num_threads(), library.most_threads) == (1, 2)
        assert (torch.get_num_threads(), library.count) == (2, None)


def test_a_model_loaded_while_a_run_is_paused_has_the_usual_threads(library):
    torch.set_num_threads(2)
    target = Target(tiny.build_model(tiny.tiny_config()))
    choose_forward(target, threads_for=lambda forward: None, library=library)
    made = each_within(target.running, (torch.get_num_threads() for _ in range(3)))
    assert next(made) == 1
    assert Target(tiny.build_model(tiny.tiny_config())).threads_used == 2
    assert list(made) == [1, 1]
    assert torch.get_num_threads() == 2


def test_without_a_number_threads_are_left_alone():
    torch.set_num_threads(3)
    with cpu_threads(None):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 3
