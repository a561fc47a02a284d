"""The lean forward: where it is taken, what it leaves of the model, and that it keeps nothing of a run."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import tiny
import torch
from families import FAMILIES, alone, family_model
from transformers import AutoModelForCausalLM

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.library import Library
from medusa_core.loading.load import load_engine
from medusa_core.loading.model_size import LeanSize
from medusa_core.loading.native_library import native_library
from medusa_core.model import lean_weights
from medusa_core.model.features import LAST_HIDDEN, Features
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.lean_cache import LEAN, row_bytes
from medusa_core.model.products import Operators
from medusa_core.model.target import Target

PARENTS = [-1, 0, 0, 1, 2, 2]


def llama(**changes):
    return tiny.build_model(tiny.tiny_config(2, **changes))


def chosen(model, **how):
    target = Target(model)
    return target, choose_forward(target, **how)


def verified(target, prompt=(1, 2, 3, 4), parents=PARENTS, features=LAST_HIDDEN):
    cache = target.new_cache(64)
    with torch.inference_mode():
        target.prefill(list(prompt), cache)
        return target.verify(tiny.token_tree(parents, tiny.random_tokens(len(parents), 3)), cache, features)


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_taken_for_its_families_alone(name):
    target, choice = chosen(family_model(name))
    wanted = FAMILIES[name].model_type in LEAN
    assert (choice.lean, target.lean is not None) == (wanted, wanted), choice.why
    assert target.forward is choice
    if not wanted:
        assert choice.words().startswith("transformers' forward (")
        assert choice.why.endswith(" has layers of its own")


def test_its_cache_rows_are_as_large_as_their_estimate():
    for name in ("llama", "qwen3", "phi3"):
        target, _ = chosen(family_model(name))
        size = LeanSize.of(target.config)
        each = len(target.layer_kinds) * size.heads * row_bytes(size.head_size)
        assert target.new_cache(7).nbytes == 7 * each


class OtherLinear(torch.nn.Linear):
    """As adapters and quantised layers are: no plain product."""


def hooked(model):
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def adapted(model):
    layer = model.model.layers[0].self_attn
    layer.q_proj.__class__ = OtherLinear


def spread(model):
    model.model.layers[0]._hf_hook = SimpleNamespace()


def of_two_dtypes(model):
    model.model.layers[0].mlp.half()


def quantized(model):
    model.is_quantized = True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (hooked, "model.layers.1.mlp has a hook"),
        (adapted, "model.layers.0.self_attn.q_proj is OtherLinear"),
        (spread, "model.layers.0 has a hook"),
        (of_two_dtypes, "its weights have 2 dtypes"),
        (quantized, "its weights are quantized"),
    ],
)
def test_a_model_that_is_more_than_its_weights_keeps_transformers_forward(change, why):
    model = llama()
    change(model)
    before = {name: tensor.data_ptr() for name, tensor in model.named_parameters()}
    target, choice = chosen(model)
    assert (choice.lean, choice.why, target.lean) == (False, why, None)
    assert before == {name: tensor.data_ptr() for name, tensor in model.named_parameters()}


def test_a_forward_that_disagrees_is_not_taken(monkeypatch):
    """A family whose layers changed in a later transformers would be seen when it loads."""
    monkeypatch.setattr(lean_weights.Norm, "__call__", lambda self, x, dtype: x.to(dtype))
    _, choice = chosen(llama())
    assert not choice.lean
    assert choice.why.startswith("the lean forward's logits are off by ")


def test_a_forward_that_fails_is_not_taken(monkeypatch):
    monkeypatch.setattr(lean_weights.Norm, "__call__", lambda self, x, dtype: x[:, :3])
    _, choice = chosen(llama())
    assert not choice.lean
    assert choice.why.startswith("the lean one fails: ")


def test_the_model_keeps_its_names_its_numbers_and_its_own_forward(tmp_path):
    model = llama(attention_bias=True, mlp_bias=True)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits, _ = alone(model, [1, 2, 3])
    assert chosen(model)[1].lean
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(alone(model, [1, 2, 3])[0], logits)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(state[name], tensor) for name, tensor in again.state_dict().items())


def test_no_weight_lies_in_memory_twice():
    """Fused matrices are the storage of the parameters, also when the model is taken a second time."""
    model = llama()
    targets = [chosen(model)[0] for _ in range(2)]
    attention = model.model.layers[1].self_attn
    for target in targets:
        fused = target.lean.weights.layers[1].qkv.weight
        assert fused.data_ptr() == attention.q_proj.weight.data_ptr()
        assert torch.equal(
            fused, torch.cat([p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
        )
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    assert sum(storages.values()) == sum(p.nbytes for p in model.parameters())


def test_what_changes_a_parameter_changes_the_lean_forward():
    model = llama()
    target, _ = chosen(model)
    before, _ = verified(target)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    after, _ = verified(target)
    assert (before - after).abs().max() > 1e-2
    torch.testing.assert_close(after, verified(Target(model))[0], atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("layers", [(0,), (1, -1), (2,), (0, 1, 2)])
def test_it_hands_out_the_hidden_states_of_transformers(layers):
    model = llama()
    target, _ = chosen(model)
    features = Features(layers)
    for found, wanted in zip(
        verified(target, features=features), verified(Target(model), features=features), strict=True
    ):
        torch.testing.assert_close(found, wanted, atol=5e-5, rtol=5e-5)


def test_a_long_text_equals_transformers_across_chunks():
    """Longer than a chunk of the exact sums, than the table of rotations and than the rows of a tree."""
    model = llama(max_position_embeddings=640)
    target, _ = chosen(model)
    prompt = tiny.random_tokens(620, 5)
    for length in (127, 128, 255, 300, 620):
        found, wanted = verified_long(target, prompt[:length]), verified_long(Target(model), prompt[:length])
        torch.testing.assert_close(found, wanted, atol=2e-4, rtol=2e-4)


def verified_long(target, prompt):
    cache = target.new_cache(640)
    with torch.inference_mode():
        target.prefill(prompt, cache)
        return target.verify(tiny.token_tree(PARENTS, tiny.random_tokens(len(PARENTS), 3)), cache)[0]


def test_a_cache_can_go_back_and_grow():
    """A conversation: a text that goes on differently, in a cache that is made larger, equals a fresh one."""
    target, _ = chosen(llama())
    cache = target.new_cache(12)
    with torch.inference_mode():
        target.prefill([1, 2, 3, 4], cache)
        target.verify(tiny.token_tree(PARENTS, [5, 6, 7, 8, 9, 10]), cache)
        cache.commit([0, 2, 5])
        cache.truncate(6)
        cache.reserve(40)
        assert (cache.slots, cache.length, cache.room) == (40, 6, 34)
        target.prefill([11, 12], cache)
        found, _ = target.verify(tiny.token_tree([-1], [9]), cache)
        fresh = target.new_cache(20)
        target.prefill([1, 2, 3, 4, 5, 7, 11, 12], fresh)
        wanted, _ = target.verify(tiny.token_tree([-1], [9]), fresh)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)
    for layer, other in zip(cache.layers, fresh.layers, strict=True):
        torch.testing.assert_close(layer.keys[:, :, :8], other.keys[:, :, :8], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(layer.values[:, :, :8], other.values[:, :, :8], atol=1e-5, rtol=1e-5)


def live_bytes():
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) is torch.Tensor and not one.is_mkldnn]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def test_memory_does_not_grow_with_the_steps():
    model = llama(max_position_embeddings=1000)
    engine = tiny.build_engine(model, tiny.random_heads(model))
    assert engine.target.lean is not None
    config = GenerationConfig.of(tree="cartesian-4x2x2", max_new_tokens=900, ignore_eos=True)
    sizes = []
    for step in engine.stream([1, 2, 3], config):
        if step.cache_length > 520 and step.index % 40 == 0:  # the table of rotations has its size by then
            sizes.append(live_bytes())
    assert len(sizes) > 3
    assert max(sizes) - min(sizes) < 2_000, sizes  # a row of the cache has 384 bytes


needs_packing = pytest.mark.skipif(Operators.find() is None, reason="this torch packs no weights")


@needs_packing
@pytest.mark.parametrize("name", ["llama", "qwen2, window", "qwen3", "phi3"])
def test_packed_weights_give_the_same_bits(name):
    model = family_model(name, dtype=torch.bfloat16)
    results = []
    for pack in (True, False):
        target, choice = chosen(model, pack=pack)
        assert (choice.lean, choice.packed) == (True, pack), choice.why
        results.append(verified(target))
    for packed, plain in zip(*results, strict=True):
        assert torch.equal(packed, plain)


@needs_packing
def test_packed_weights_leave_the_model_alone():
    model = tiny.build_model(tiny.tiny_config(2), dtype=torch.bfloat16)
    before = {name: tensor.data_ptr() for name, tensor in model.named_parameters()}
    assert chosen(model, pack=True)[1].packed
    assert before == {name: tensor.data_ptr() for name, tensor in model.named_parameters()}


def test_without_torchs_private_names_products_are_its_own(monkeypatch):
    assert Operators.find(SimpleNamespace()) is None
    monkeypatch.setattr(Operators, "find", classmethod(lambda cls: None))
    target, choice = chosen(tiny.build_model(tiny.tiny_config(2), dtype=torch.bfloat16))
    assert (choice.lean, choice.packed) == (True, False)
    assert verified(target)[0].dtype == torch.bfloat16


def test_operators_that_fail_or_are_slower_are_not_used(monkeypatch):
    def fails(*_):
        raise RuntimeError("this CPU has no such units")

    for pack in (fails, lambda weight, rows: weight):
        monkeypatch.setattr(Operators, "find", classmethod(lambda cls, pack=pack: cls(pack, fails)))
        _, choice = chosen(tiny.build_model(tiny.tiny_config(2), dtype=torch.bfloat16))
        assert (choice.lean, choice.packed) == (True, False)


def test_an_engine_says_which_forward_it_runs(engine_folder):
    engine = load_engine(LoadConfig(str(engine_folder), dtype="float32", device="cpu"))
    words = "lean forward in C, exact" if isinstance(native_library(), Library) else "lean forward"
    assert engine.info.forward == engine.target.forward.words() == words


def test_a_cache_of_another_forward_is_refused():
    target, _ = chosen(llama())
    with pytest.raises(MedusaError, match="of another forward: make one with new_cache"):
        target.prefill([1, 2], TreeCache(2, 8))
