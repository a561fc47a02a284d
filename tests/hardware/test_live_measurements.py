"""What is measured live, on tiny models: passes by size, with and without cache, kinds of attention."""

from __future__ import annotations

import pytest
import torch

from medusa_core.errors import MedusaError
from medusa_core.evaluation.attention_kinds import KV_HEADS, measure_kinds, random_target
from medusa_core.evaluation.forward_times import measure_forwards, measure_growth


def test_passes_of_every_size_are_timed(engine):
    *_, found = measure_forwards(engine, 8, sizes=(1, 4), rounds=3)
    assert [each.tokens for each in found] == [1, 4]
    assert all(0 < each.low <= each.ms <= each.high for each in found)
    with pytest.raises(MedusaError, match="give 1 to"):
        next(measure_forwards(engine, 10_000))


def test_a_text_without_a_cache_is_the_same_text(engine):
    points = list(measure_growth(engine, [1, 2, 3], 6))
    assert [point.length for point in points] == [4, 5, 6, 7, 8, 9]
    assert all(point.same and point.cached_ms > 0 and point.recomputed_ms > 0 for point in points)
    with pytest.raises(MedusaError, match="tokens are asked for"):
        next(measure_growth(engine, [1], 10_000))


def test_shared_heads_keep_less():
    *_, found = measure_kinds(lengths=(4, 9), rounds=1)
    assert [(each.kind, each.length) for each in found] == [
        (kind, length) for length in (4, 9) for kind in ("MHA", "GQA", "MQA")
    ]
    at_nine = {each.kv_heads: each.cache_bytes for each in found if each.length == 9}
    assert at_nine[8] == 4 * at_nine[2] == 8 * at_nine[1]


@pytest.mark.parametrize("kv_heads", KV_HEADS)
def test_the_random_models_read_their_cache(kv_heads):
    target = random_target(kv_heads, 16)
    with torch.inference_mode():
        whole, _ = target.prefill([1, 5, 9, 2], target.new_cache(8))
        cache = target.new_cache(8)
        target.prefill([1, 5], cache)
        parts, _ = target.prefill([9, 2], cache)
    assert torch.allclose(whole, parts, atol=1e-5)
