"""While a model is loaded its dtype is torch's default for all threads; runs must not take it over."""

from __future__ import annotations

import pytest
import torch

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import method_names
from medusa_core.loading.load import load_engine
from medusa_core.model.rotary import rotations
from medusa_core.trace.builder import TraceBuilder

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
    builder, steps = TraceBuilder(engine, config, prompt), []
    for step in engine.stream(prompt, config):
        assert step.tree.draft_logp.dtype == torch.float32
        steps.append((step.tree.draft_logp.tolist(), step.logits.tolist()))
        builder.add(step)
    kept = builder.finish()["steps"]
    return [{key: one[key] for key in one if key != "ms"} for one in kept], steps


@pytest.mark.sample
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", method_names())
def test_a_run_is_what_it_is_alone(shipped, a_load, method, rule):
    config = GenerationConfig.of(method=method, max_new_tokens=20, ignore_eos=True, **RULES[rule])
    alone = record_of(shipped, config)
    a_load()
    assert record_of(shipped, config) == alone


def test_rotations_are_what_they_are_alone(shipped, a_load):
    rotary = shipped.target.forward.weights.rotary
    alone = rotations(rotary, 300, torch.device("cpu"))
    a_load()
    for mine, usual in zip(rotations(rotary, 300, torch.device("cpu")), alone, strict=True):
        assert torch.equal(mine, usual)
