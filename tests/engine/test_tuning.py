"""Threads by measurement: what was found is used, kept and said; a busy machine changes nothing."""

from __future__ import annotations

import itertools

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.loading import tuning
from medusa_core.model.target import Target
from medusa_core.model.threads import cpu_threads


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
    target = Target(tiny.build_model(tiny.tiny_config()))
    assert choose_forward(target, library=library).native
    return target


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


def test_a_run_has_its_threads_and_gives_them_back(engine):
    torch.set_num_threads(2)
    target = engine.target
    assert target.threads is None
    target.threads, target.usual_threads = 1, 2
    try:
        first, second = (engine.stream(tiny.PROMPT, GenerationConfig(max_new_tokens=24)) for _ in range(2))
        next(first), next(second)
        assert torch.get_num_threads() == 1
        first.close()  # one of two that take turns ends, and the other one goes on as before
        next(second)
        next(second)
        assert torch.get_num_threads() == 1
        second.close()
        assert torch.get_num_threads() == 2
    finally:
        target.threads, target.usual_threads = None, 1


def test_torch_keeps_to_one_thread_while_c_has_the_others(library):
    torch.set_num_threads(2)
    target = Target(tiny.build_model(tiny.tiny_config()))
    choose_forward(target, threads_for=lambda forward: None, library=library)
    with target.running() as again:
        assert (torch.get_num_threads(), library.count, library.most_threads) == (1, 2, 2)
        with Target(tiny.build_model(tiny.tiny_config())).running():  # torch computes it
            assert torch.get_num_threads() == 1
        library.count = None  # another run has ended
        torch.set_num_threads(2)
        again()
        assert (torch.get_num_threads(), library.count) == (1, 2)
        second = Target(tiny.build_model(tiny.tiny_config()))
        choose_forward(second, threads_for=lambda forward: None, library=library)
        assert second.usual_threads == 2
    assert (torch.get_num_threads(), library.count) == (2, None)


def test_without_a_number_threads_are_left_alone():
    torch.set_num_threads(3)
    with cpu_threads(None, 2) as again:
        again()
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 3
