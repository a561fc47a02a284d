"""Model shapes: read off configs, checked, agreeing with weights; what is measured live on tiny models."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from medusa_core.checkpoints.files import tensor_headers
from medusa_core.checkpoints.locate import embedded_model
from medusa_core.errors import MedusaError
from medusa_core.evaluation.attention_kinds import KV_HEADS, measure_kinds, random_target
from medusa_core.evaluation.forward_times import measure_forwards, measure_growth
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.shapes import ModelShape, attention_kind, find_shape, known_shapes, shape_of_config

SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 100,
}  # fmt: skip


def test_the_embedded_model_has_as_many_numbers_as_its_files_but_for_norms():
    folder = embedded_model()
    shape = shape_of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")), "embedded")
    there = sum(each.count for file in folder.glob("model*.safetensors") for each in tensor_headers(file))
    norms = (2 * shape.layers + 1) * shape.hidden
    assert shape.parameters + norms == there


@pytest.mark.parametrize(
    ("name", "billions"), [("llama-7b", 6.74), ("llama-33b", 32.5), ("qwen2.5-7b", 7.62)]
)
def test_known_models_have_their_published_size(name, billions):
    assert known_shapes()[name].parameters / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    ("size", "parameters"), [("3B", 3e9), ("350m", 0.35e9), ("20 b", 20e9), ("70B", 70e9)]
)
def test_a_size_gets_the_proportions_of_the_nearest_model(size, parameters):
    shape = find_shape(size)
    assert shape.parameters == pytest.approx(parameters, rel=0.04)
    assert replace(shape, name="", layers=1) in [
        replace(one, name="", layers=1) for one in known_shapes().values()
    ]
    assert find_shape(" Llama-7B ") == known_shapes()["llama-7b"]


@pytest.mark.parametrize(
    ("name", "words"), [("14M", "300M to 200B"), ("3", "give a size such as 3B, or one of")]
)
def test_a_size_that_cannot_be_estimated_is_refused(name, words):
    with pytest.raises(MedusaError, match=words):
        find_shape(name)


def test_a_device_is_given_by_its_limits():
    own = find_device("900 GB/s, 120 TFLOP/s")
    assert (own.bandwidth, own.peak, own.memory) == (900e9, 120e12, 0)
    assert find_device("0.9 tb/s 120 TFLOPS").title == "0.9 TB/s, 120 TFLOP/s"
    with pytest.raises(MedusaError, match="give more"):
        find_device("0 GB/s, 120 TFLOP/s")


def test_names_of_other_families_are_read():
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}
    shape = shape_of_config(gpt2 | {"tie_word_embeddings": True}, "gpt2")
    assert (shape.head_size, shape.intermediate, shape.kv_heads, shape.gated) == (64, 3072, 12, False)
    assert shape.parameters / 1e6 == pytest.approx(124, rel=0.02)
    assert shape_of_config({"text_config": SMALL}, "nested").kv_heads == 2


def test_kinds_of_attention():
    assert [attention_kind(8, count) for count in (8, 4, 1)] == ["MHA", "GQA", "MQA"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_key_value_heads": 3}, "do not divide 8 query heads evenly: use one of 1, 2, 4, 8"),
        ({"num_hidden_layers": 0}, "number of layers is 0"),
        ({"hidden_size": 10**6, "num_hidden_layers": 400}, "lower the layers or the hidden size"),
        ({"num_local_experts": 8}, "experts"),
        ({"kv_lora_rank": 512}, "compressed"),
        ({"hidden_size": None}, "does not say the hidden size"),
        ({"hidden_size": "wide", "head_dim": 8}, "'wide'"),
    ],
)  # fmt: skip
def test_a_bad_shape_gets_a_sentence(change, words):
    with pytest.raises(MedusaError, match=words):
        shape_of_config(SMALL | change, "small")


def test_a_trillion_parameters_are_too_many():
    with pytest.raises(MedusaError, match="fewer than 1e\\+12"):
        ModelShape("huge", 100_000, 400_000, 100, 100, 1000, 10, 32_000)


# --- What is measured live, on tiny models: passes by size, with and without cache, kinds of attention.


def test_passes_of_every_size_are_timed(engine):
    *_, found = measure_forwards(engine, 8, sizes=(1, 4), rounds=3)
    assert [each.tokens for each in found] == [1, 4]
    assert all(each.ms > 0 for each in found)
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
