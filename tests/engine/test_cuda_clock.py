"""The clock of a GPU: phases by marks in its queue, without a wait for each, with marks that need no GPU."""

from __future__ import annotations

import pytest
import torch

from medusa_core import clock as clocks


class Queue:
    """A GPU that works a given time for each piece of work, beside a host that never waits for it."""

    def __init__(self):
        self.now, self.waits = 0.0, 0

    def work(self, milliseconds):
        self.now += milliseconds


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()

    class Mark:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            self.at = queue.now

        def synchronize(self):
            queue.waits += 1

        def elapsed_time(self, other):
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Mark)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("a wait for all of the GPU"))
    return queue


def test_phases_are_those_of_the_gpu_and_one_wait_is_left(queue, monkeypatch):
    host = iter([0.0, 0.001, 0.002, 0.060, 0.062, 0.064])  # seconds: start, four laps, the end
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: next(host))
    clock = clocks.clock_for(torch.device("cuda", 0))
    for milliseconds in (10.0, 40.0, 5.0, 1.0):
        queue.work(milliseconds)
        clock.lap()
    ms = clock.times()
    assert (ms.propose, ms.verify) == (10.0, 40.0)
    assert (ms.accept, ms.commit, ms.total) == (pytest.approx(10.0), pytest.approx(2.0), pytest.approx(64.0))
    assert queue.waits == 1


def test_a_cpu_counts_on_the_host(queue):
    clock = clocks.clock_for(torch.device("cpu"))
    for _ in range(4):
        clock.lap()
    ms = clock.times()
    assert ms.total >= ms.propose + ms.verify + ms.accept + ms.commit
    assert queue.waits == 0


def test_a_whole_step_knows_its_phases(queue, monkeypatch):
    host = iter([0.0, 0.040, 0.042, 0.044])
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: next(host))
    clock = clocks.clock_for(torch.device("cpu"))
    clock.made_whole(5.0, 30.0)
    clock.lap()
    ms = clock.times()
    assert (ms.propose, ms.verify, ms.accept) == (5.0, 30.0, pytest.approx(5.0))
    assert (ms.commit, ms.total) == (pytest.approx(2.0), pytest.approx(44.0))
