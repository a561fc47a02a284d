"""The target: a tree forward equals each branch run alone, for every family, kernel and chunk size."""

from __future__ import annotations

import pytest
import tiny
import torch
import transformers
from families import alone
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.errors import MedusaError
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.loaded_model import PROVEN
from medusa_core.model.target import Target

KERNELS = ["sdpa", "eager"]
SMALL = {
    "vocab_size": tiny.VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
SHAPE = SMALL | {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
SEES = {
    "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "image_size": 8, "patch_size": 4, "depth": 1, "num_heads": 1, "out_hidden_size": 32,
}  # fmt: skip


@pytest.fixture(scope="module", params=KERNELS)
def either_kernel(request):
    """The same tiny Llama with each attention kernel."""
    return tiny.build_model(tiny.tiny_config(kv_heads=2), request.param)


def test_a_tree_forward_equals_each_branch_run_alone(either_kernel):
    """Random trees; the fixed ones of test_families.py go through every family."""
    model = either_kernel
    target = Target(model)

    @settings(max_examples=12)
    @given(parents=tiny.parent_lists(10), seed=st.integers(0, 10**6))
    def check(parents, seed):
        prompt = tiny.random_tokens(6, seed)
        tokens = tiny.random_tokens(len(parents), seed + 1)
        cache = target.new_cache(32)
        target.prefill(prompt, cache)
        logits, hidden = target.verify(tiny.token_tree(parents, tokens), cache, LAST_HIDDEN)
        assert cache.length == len(prompt)  # nothing is committed by looking
        for node in range(len(parents)):
            branch = prompt + [tokens[step] for step in tiny.path_to(parents, node)]
            wanted_logits, wanted_hidden = alone(model, branch)
            torch.testing.assert_close(logits[node], wanted_logits, atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(hidden[node], wanted_hidden, atol=2e-5, rtol=1e-5)

    check()


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flash_attention_3", "flex_attention", "paged|sdpa"])
def test_attention_without_a_tree_mask_is_refused(kernel):
    model = tiny.build_model(tiny.tiny_config(), "eager")
    model.config._attn_implementation_internal = kernel
    with pytest.raises(MedusaError) as error:
        Target(model)
    assert f"attention {kernel!r} takes no tree mask: load the model with" in str(error.value)


REFUSED = {
    "lfm2 has layers of kind conv, whose state cannot hold a tree": transformers.Lfm2Config(
        **SHAPE, layer_types=["conv", "full_attention"]
    ),
    "llama4_text has layers of kind chunked_attention": transformers.Llama4TextConfig(
        **SHAPE, intermediate_size_mlp=48, num_local_experts=2, layer_types=["chunked_attention"] * 2
    ),
    "mamba keeps a recurrent state": transformers.MambaConfig(
        vocab_size=24, hidden_size=32, state_size=4, num_hidden_layers=2
    ),
    "recurrent_gemma keeps a recurrent state": transformers.RecurrentGemmaConfig(
        **SHAPE, lru_width=32, attention_window_size=8
    ),
    "bloom takes no position_ids": transformers.BloomConfig(
        vocab_size=24, hidden_size=32, n_layer=2, n_head=4
    ),
    "mpt takes no position_ids": transformers.MptConfig(vocab_size=24, d_model=32, n_layers=2, n_heads=4),
    r"falcon places tokens by slot \(ALiBi\)": transformers.FalconConfig(
        **SMALL, alibi=True, new_decoder_architecture=False
    ),
    "gpt_neo has local attention that counts slots": transformers.GPTNeoConfig(
        vocab_size=24, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "gemma3_text reads in both directions": transformers.Gemma3TextConfig(
        **SHAPE, use_bidirectional_attention=True
    ),
    "the hidden states of gemma3n_text are not what its LM head reads": transformers.Gemma3nTextConfig(
        **SHAPE, layer_types=["full_attention"] * 2, hidden_size_per_layer_input=8, laurel_rank=4,
        vocab_size_per_layer_input=24, num_kv_shared_layers=0, altup_num_inputs=2,
        activation_sparsity_pattern=[0.0, 0.0],
    ),
    "llama4_text has layers of kind chunked_attention, whose state": transformers.Llama4Config(
        text_config=SHAPE | {"intermediate_size_mlp": 48, "num_local_experts": 2}, vision_config=SEES
    ),
    "gemma reads in both directions": transformers.PaliGemmaConfig(
        text_config=SHAPE | {"model_type": "gemma"}, vision_config=SEES
    ),
    "qwen3_5_text keeps a recurrent state": transformers.Qwen3_5Config(text_config=SHAPE, vision_config=SEES),
    "lfm2 has layers of kind conv": transformers.Lfm2VlConfig(
        text_config=SHAPE | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
        vision_config=SEES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_models_that_cannot_hold_a_tree_are_refused(message):
    with pytest.raises(MedusaError, match=message) as error:
        Target(tiny.build_model(REFUSED[message], "eager"))
    assert ": use a" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_encoder_decoder_is_refused():
    config = transformers.T5Config(vocab_size=24, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    with pytest.raises(MedusaError, match="t5 is an encoder–decoder: use a decoder-only language model"):
        Target(transformers.T5ForConditionalGeneration(config))


def test_a_model_without_an_lm_head_is_refused():
    with pytest.raises(MedusaError, match="llama has no LM head: load it as a causal language model"):
        Target(transformers.LlamaModel(tiny.tiny_config()))


def test_a_model_that_reads_in_both_directions_is_found_out():
    """Nothing in BERT's config says so: its tree is compared with its branch when it loads."""
    config = transformers.BertConfig(
        **SMALL | {"pad_token_id": 0}, intermediate_size=48, initializer_range=0.3
    )
    with pytest.raises(MedusaError, match=r"bert gives a node of a tree other logits .* \(off by \d+%\)"):
        Target(transformers.BertLMHeadModel(config))


class UnknownConfig(transformers.LlamaConfig):
    """A family that no test of the engine has run."""

    model_type = "unknown"


class ForgetfulModel(transformers.LlamaForCausalLM):
    """Takes a mask and makes one of its own."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, cache=None, **others):
        return super().forward(input_ids, position_ids=position_ids, cache=cache, **others)


class SlotModel(transformers.LlamaForCausalLM):
    """Takes positions and counts slots."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, cache=None, **others):
        return super().forward(input_ids, attention_mask=attention_mask, cache=cache, **others)


class ShortModel(transformers.LlamaForCausalLM):
    """Gives hidden states that its LM head does not read; its code has the old name of the cache."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, **others):
        output = super().forward(
            input_ids, attention_mask=attention_mask, position_ids=position_ids,
            cache=past_key_values, **others,
        )  # fmt: skip
        if output.hidden_states is not None:
            output.hidden_states = output.hidden_states[:1]
        return output


class BrokenModel(transformers.LlamaForCausalLM):
    """Knows 2-D masks only."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, cache=None, **others):
        _, _ = attention_mask.shape
        raise AssertionError("no 4-D mask gets here")


class UnknownSlidingConfig(transformers.MistralConfig):
    """A family that is not in the list, with a window that its class knows."""

    model_type = "unknown"


def unknown(cls, dtype=torch.float32, **changes):
    """A tiny model of a family that is not in the list."""
    torch.manual_seed(0)
    settings_ = {k: v for k, v in tiny.tiny_config(**changes).to_dict().items() if k != "model_type"}
    config = UnknownConfig(**settings_, attn_implementation="sdpa")
    return cls(config).to(dtype).eval().requires_grad_(False)


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (ForgetfulModel, "unknown gives a node of a tree other logits than its branch alone"),
        (SlotModel, "unknown gives a node of a tree other logits than its branch alone"),
        (ShortModel, "the hidden states of unknown are not what its LM head reads"),
        (BrokenModel, "unknown cannot run a tree .too many values to unpack"),
    ],
)
def test_an_unknown_family_that_cannot_is_found_out(cls, message, dtype):
    with pytest.raises(MedusaError, match=message):
        Target(unknown(cls, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_unknown_family_that_can_is_used(dtype):
    assert "unknown" not in PROVEN
    target = Target(unknown(transformers.LlamaForCausalLM, dtype))
    assert target.context == 96
    assert not target.model.training


def test_the_window_of_an_unknown_family_bounds_its_context():
    """Whether such a model counts its window as others do, nobody has seen."""
    config = UnknownSlidingConfig(**SHAPE, sliding_window=16, attn_implementation="sdpa")
    torch.manual_seed(0)
    target = Target(transformers.MistralForCausalLM(config).eval().requires_grad_(False))
    assert target.context_words == (
        "the context holds 16, since unknown has a window of 16 and no test has run it beyond that"
    )


@pytest.mark.parametrize("window", [None, 16, 500])
def test_a_window_does_not_bound_the_context_of_a_known_family(window):
    config = transformers.MistralConfig(**SHAPE, sliding_window=window)
    assert Target(tiny.build_model(config)).context == 64


def test_an_unused_window_is_none():
    unused = transformers.Qwen2Config(**SHAPE, use_sliding_window=False, sliding_window=16)
    target = Target(tiny.build_model(unused))
    assert (target.masks.window, target.masks.kinds) == (None, {"full_attention"})


def test_nothing_stays_on_the_model(model):
    """Runs on one model cannot meet when nothing of a run is stored on it."""
    alone(model, [1, 2, 3])  # transformers sets up its hooks at the first forward
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    target = Target(model)
    cache = target.new_cache(16)
    target.prefill([1, 2, 3], cache)
    target.verify(tiny.token_tree([-1, 0, 0], [1, 0, 2]), cache)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
