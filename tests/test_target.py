"""The target: a tree forward equals each branch run alone, for every family, kernel and chunk size."""

from __future__ import annotations

import functools

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    GemmaConfig,
    Lfm2Config,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from medusa_core import target as target_module
from medusa_core.errors import MedusaError
from medusa_core.target import Target, mask_for

COMMON = tiny.tiny_config(kv_heads=2).to_dict()
SHAPE = {
    name: COMMON[name]
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "initializer_range",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    )
}
SHAPE |= {"head_dim": 8, "max_position_embeddings": 64}
# Gemma multiplies embeddings by √d and adds 1 to its norms: milder weights keep its logits comparable.
MILD = SHAPE | {"initializer_range": 0.1}
FAMILIES = {
    "llama": lambda: tiny.tiny_config(kv_heads=2),
    "mistral": lambda: MistralConfig(**SHAPE, sliding_window=None),
    "mistral, window": lambda: MistralConfig(**SHAPE, sliding_window=40),
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen2, window": lambda: Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=40, max_window_layers=1
    ),
    "qwen3": lambda: Qwen3Config(**SHAPE),
    "gemma": lambda: GemmaConfig(**MILD),
    "gemma2": lambda: Gemma2Config(**MILD, sliding_window=40, query_pre_attn_scalar=8),
}


@functools.cache
def family_model(family, attention):
    return tiny.build_model(FAMILIES[family](), attention)


def alone(model, tokens):
    """Slow version: transformers without cache or our mask; logits [V], hidden [d] of the last token."""
    output = model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return output.logits[0, -1], output.hidden_states[-1][0, -1]


# transformers has no sdpa kernel for Gemma2, whose scores are capped.
PAIRS = [
    (family, kernel)
    for family in FAMILIES
    for kernel in ("sdpa", "eager")
    if (family, kernel) != ("gemma2", "sdpa")
]


@pytest.mark.parametrize(("family", "attention"), PAIRS)
def test_a_tree_forward_equals_each_branch_run_alone(family, attention):
    model = family_model(family, attention)
    target = Target(model)

    @settings(max_examples=6)
    @given(parents=tiny.parent_lists(10), seed=st.integers(0, 10**6))
    def check(parents, seed):
        prompt = tiny.random_tokens(6, seed)
        tokens = tiny.random_tokens(len(parents), seed + 1)
        cache = target.new_cache(32)
        target.prefill(prompt, cache)
        logits, hidden = target.verify(tiny.token_tree(parents, tokens), cache)
        assert cache.length == len(prompt)  # nothing is committed by looking
        for node in range(len(parents)):
            branch = prompt + [tokens[step] for step in tiny.path_to(parents, node)]
            wanted_logits, wanted_hidden = alone(model, branch)
            torch.testing.assert_close(logits[node], wanted_logits, atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(hidden[node], wanted_hidden, atol=2e-5, rtol=1e-5)

    check()


def test_a_wrong_mask_is_seen_by_this_comparison():
    """The property above has teeth: a plain causal mask over the same tree differs visibly."""
    target = Target(family_model("llama", "sdpa"))
    results = []
    for causal in (False, True):
        tree = tiny.token_tree([-1, 0, 0], [1, 5, 9])
        if causal:
            tree.mask.copy_(torch.ones(3, 3, dtype=torch.bool).tril())
        cache = target.new_cache(32)
        target.prefill([1, 2, 3], cache)
        results.append(target.verify(tree, cache)[0][2])
    assert (results[0] - results[1]).abs().max() > 1e-2


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("chunk", [1, 3, 7, 20])
def test_a_prompt_read_in_chunks_equals_one_read_at_once(chunk, attention, monkeypatch):
    model = family_model("llama", attention)
    prompt = tiny.random_tokens(20, seed=3)
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", chunk)
    target = Target(model)
    cache = target.new_cache(32)
    logits, hidden = target.prefill(prompt, cache)
    wanted_logits, wanted_hidden = alone(model, prompt)
    assert cache.length == len(prompt)
    torch.testing.assert_close(logits, wanted_logits, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(hidden, wanted_hidden, atol=2e-5, rtol=1e-5)


def test_mask_for_each_kernel():
    """Boolean for sdpa; for eager a number to add, since there True would silently add 1 to a score."""
    allowed = torch.tensor([[True, False], [True, True]])
    assert mask_for("sdpa", allowed, torch.float32) is allowed
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        additive = mask_for("eager", allowed, dtype)
        assert additive.dtype == dtype
        assert additive.tolist() == [[0.0, torch.finfo(dtype).min], [0.0, 0.0]]


def test_attention_without_a_tree_mask_is_refused():
    model = tiny.build_model(tiny.tiny_config(), "eager")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(MedusaError, match="'flash_attention_2' takes no tree mask: load the model with"):
        Target(model)


def test_hybrid_layers_are_refused():
    config = Lfm2Config(
        vocab_size=24, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["conv", "full_attention"],
    )  # fmt: skip
    with pytest.raises(MedusaError, match="lfm2 has layers of kind conv, whose state cannot hold a tree"):
        Target(tiny.build_model(config))


def test_a_model_without_attention_is_refused():
    config = MambaConfig(vocab_size=24, hidden_size=32, state_size=4, num_hidden_layers=2)
    torch.manual_seed(0)
    from transformers import MambaForCausalLM

    with pytest.raises(MedusaError, match="mamba"):
        Target(MambaForCausalLM(config))


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"sliding_window": None}, 64),
        ({"sliding_window": 16}, 16),
        ({"sliding_window": 500}, 64),
    ],
)
def test_a_sliding_window_bounds_the_context(changes, context):
    """Beyond the window rows would have to be masked, which the tree's mask does not do."""
    assert Target(tiny.build_model(MistralConfig(**SHAPE, **changes))).context == context


def test_an_unused_window_does_not_bound_the_context():
    unused = Qwen2Config(**SHAPE, use_sliding_window=False, sliding_window=16)
    used = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=16, max_window_layers=1)
    assert Target(tiny.build_model(unused)).context == 64
    assert Target(tiny.build_model(used)).context == 16


def test_describes_the_model(model):
    target = Target(model)
    assert target.vocab_size == tiny.VOCABULARY
    assert target.dtype == torch.float32
    assert target.device == target.output_device == torch.device("cpu")
    assert target.context == 96


def test_nothing_stays_on_the_model(model):
    """Runs on one model cannot meet when nothing of a run is stored on it."""
    alone(model, [1, 2, 3])  # transformers sets up its hooks at the first forward
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    target = Target(model)
    cache = target.new_cache(16)
    target.prefill([1, 2, 3], cache)
    target.verify(tiny.token_tree([-1, 0, 0], [1, 0, 2]), cache)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
