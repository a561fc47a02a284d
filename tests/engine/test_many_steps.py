"""What a process holds after ten thousand steps is what it held after the first ones."""

from __future__ import annotations

import gc

import psutil
import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig

_STEPS = 500  # steps of a run


def steps_of(engine, method, batch):
    config = GenerationConfig.of(
        method=method, tree="cartesian-4x2x2", max_new_tokens=_STEPS, ignore_eos=True
    )
    prompts = [tiny.random_tokens(5, seed=seed) for seed in range(batch)]
    return sum(1 for _ in engine.stream_batch(prompts, config, batch))


def live_bytes():
    tensors = [one for one in gc.get_objects() if type(one) is torch.Tensor and not one.is_mkldnn]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ten_thousand_steps_leave_nothing_behind(dtype):
    model = tiny.build_model(tiny.tiny_config(2, max_position_embeddings=600), dtype=getattr(torch, dtype))
    heads = tiny.random_heads(model).to(getattr(torch, dtype))
    engine = tiny.build_engine(model, heads)
    process, held, resident, made = psutil.Process(), [], [], 0
    while made < 13_000:
        for method, batch in (("none", 1), ("medusa", 1), ("medusa", 3), ("ngram", 2)):
            made += steps_of(engine, method, batch)
        gc.collect()
        held.append(live_bytes())
        resident.append(process.memory_info().rss)
    # The first round pays for tables and buffers of kernels.
    assert len(held) > 3
    assert max(held[1:]) - held[1] < 2_000, held
    assert max(resident[1:]) - resident[1] < 4 * 2**20, resident
