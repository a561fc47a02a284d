"""While a model is loaded its dtype is torch's default for all threads; runs must not take it over."""

from __future__ import annotations

import os
import threading
import time

import pytest
import tiny
import torch

from medusa_core.checkpoints.base import ONE_MODEL_AT_A_TIME
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import method_names
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.model.rotary import rotations_at
from medusa_core.training.losses import scores_of, weighted_sum

RULES = {
    "greedy": {},
    "penalty": {"penalty": 1.2},
    "match": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    "typical": {"temperature": 0.8, "acceptance": "typical"},
    "rejection": {"temperature": 0.8, "acceptance": "rejection"},
    "nucleus": {"temperature": 0.8, "acceptance": "nucleus"},
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def shipped(request):
    return load_engine(LoadConfig(dtype=request.param, device="cpu"))


@pytest.fixture
def a_load():
    """What a load in another thread changes, until the test is over."""
    before = torch.get_default_dtype()
    yield lambda: torch.set_default_dtype(torch.bfloat16)
    torch.set_default_dtype(before)


def record_of(engine, config):
    """All that is kept of a run but its times."""
    prompt = engine.encode("Once upon a time there was a little girl. Once upon a time")
    builder, steps = tiny.traced(engine, config, prompt)
    assert {step.tree.draft_logp.dtype for step in steps} == {torch.float32}
    numbers = [(step.tree.draft_logp.tolist(), step.logits.tolist()) for step in steps]
    return [step | {"ms": None} for step in builder.finish()["steps"]], numbers


@pytest.mark.sample
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", method_names())
def test_a_run_is_what_it_is_alone(shipped, a_load, method, rule):
    config = GenerationConfig.of(method=method, max_new_tokens=20, ignore_eos=True, **RULES[rule])
    alone = record_of(shipped, config)
    a_load()
    assert record_of(shipped, config) == alone


def test_losses_are_what_they_are_alone(a_load):
    draw = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 50, (301,), generator=draw)
    logits = torch.randn(301, 50, generator=draw)
    alone = weighted_sum(torch.linspace(1, 2, 5), 0.8), *vars(scores_of([(logits, targets)])).values()
    a_load()
    beside = (
        weighted_sum(torch.linspace(1, 2, 5, dtype=torch.float32), 0.8),
        *vars(scores_of([(logits, targets)])).values(),
    )
    assert all(torch.equal(mine, usual) for mine, usual in zip(beside, alone, strict=True))


def test_a_process_that_is_forked_meanwhile_finds_no_lock():
    begun = threading.Event()

    def load():
        with ONE_MODEL_AT_A_TIME:
            begun.set()
            time.sleep(0.1)  # as long as the fork has to wait

    loader = threading.Thread(target=load)
    loader.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if ONE_MODEL_AT_A_TIME.acquire(timeout=5) else 1)
    loader.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_default_device_whose_memory_c_cannot_read_is_refused(shipped):
    # Not set_default_device(None) afterwards: torch 2.9 then has no default device at all.
    with torch.device("meta"), pytest.raises(MedusaError, match="default device is meta"):
        next(shipped.stream([1, 2], GenerationConfig()))


def test_rotations_are_what_they_are_alone(shipped, a_load):
    rotary = shipped.target.forward.weights.rotary
    alone = rotations_at(rotary, torch.arange(300))
    a_load()
    for mine, usual in zip(rotations_at(rotary, torch.arange(300)), alone, strict=True):
        assert torch.equal(mine, usual)
