"""A step waits for the device once: what the host must know comes in one transfer."""

from __future__ import annotations

import pytest
import tiny
import torch
from test_captured_runs import captured_target
from torch.overrides import TorchFunctionMode

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine

READS = (
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__int__",
    "__bool__",
    "__float__",
    "__index__",
    "equal",
    "nonzero",
)


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
    engine = tiny.build_engine(model, tiny.fitted_heads(model))
    return Engine(captured_target(model), engine.drafts, engine.tokenizer, engine.info)


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
