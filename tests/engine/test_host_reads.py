"""A step waits for the device once, and the clock of a GPU counts its phases without a wait for each."""

from __future__ import annotations

import pytest
import tiny
import torch
from captures import engine_on
from torch.overrides import TorchFunctionMode

from medusa_core.config import GenerationConfig
from medusa_core.model import clock as clocks

READS = {"item", "tolist", "cpu", "numpy", "equal", "nonzero"}
READS |= {"__int__", "__bool__", "__float__", "__index__"}


class CountedReads(TorchFunctionMode):
    """Counts the calls that hand a tensor's values to Python, which on a GPU waits for all kernels before."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in READS:
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def captured_engine(model):
    return engine_on(model)


@pytest.mark.sample
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "none"},
        {"method": "none", "temperature": 0.8},
        {"method": "medusa"},
        {"method": "medusa", "temperature": 0.8},
        {"method": "medusa", "temperature": 0.8, "acceptance": "typical"},
        {"method": "ngram"},
    ],
    ids=str,
)
def test_a_step_reads_the_device_once(captured_engine, settings, batch):
    config = GenerationConfig.of(**{"max_new_tokens": 30, "ignore_eos": True} | settings)
    prompts = [tiny.random_tokens(6, seed=number) for number in range(batch)]
    steps = captured_engine.stream_batch(prompts, config, batch)
    for _ in range(batch):  # the first step of each, after its prompt
        next(steps)
    with CountedReads() as reads:
        made = 0
        for _, step in steps:
            made += 1
            if step.finish_reason is not None:
                break
    # The steps of a batch are made together, so those of its other runs may be made and not yet taken.
    rounds = -(-made // batch)
    assert made > 5
    assert len(reads.calls) == rounds * batch, reads.calls


def test_reads_are_counted():
    """What the test above would not see would prove nothing."""
    one = torch.ones(1)
    with CountedReads() as reads:
        one.item(), one.tolist(), one.cpu(), int(one), bool(one), float(one), one.numpy()
        torch.equal(one, one)
    assert len(reads.calls) == 8


# --- The clock of a GPU: phases by marks in its queue, without a wait for each, with marks that need no GPU.


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
    clock.lap_fused(5.0, 30.0)
    clock.lap()
    ms = clock.times()
    assert (ms.propose, ms.verify, ms.accept) == (5.0, 30.0, pytest.approx(5.0))
    assert (ms.commit, ms.total) == (pytest.approx(2.0), pytest.approx(44.0))
