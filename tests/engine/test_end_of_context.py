"""The last token of the context, where no guess has room, in the forms that heads are held in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.draft import MedusaDraft


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_run_ends_with_the_context(dtype, batch, library):
    """Heads in C are asked for nothing there."""
    model = tiny.build_model(tiny.tiny_config(2, hidden_size=64, max_position_embeddings=32), dtype=dtype)
    draft = MedusaDraft(tiny.random_heads(model).to(dtype), library=library)
    engine = replace(tiny.build_engine(model, None), drafts={"medusa": draft})
    assert draft.native is not None
    prompts = [tiny.random_tokens(20, seed=seed) for seed in range(batch)]
    config = GenerationConfig.of(tree="cartesian-2x2", max_new_tokens=100)
    last = dict(engine.stream_batch(prompts, config, batch))
    for step in last.values():
        assert step.finish_reason == "context"
        assert step.cache_length + len(step.verdict.path) == 32
