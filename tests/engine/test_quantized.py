"""Bases in 4 and 8 bits, packed while they load or saved so, run by bitsandbytes' CPU kernels.

In 8 bits that is what runs where the C does not: it packs weights by itself (test_8_bits_in_c.py).

4-bit weights are made into numbers again before each product, so every row is read as if it were alone. In 8
bits, LLM.int8 takes activations beyond 6 out of the integers for all rows of a forward at once: with them a
row depends a little on its neighbours, without them it does not. Both are shown below.
"""

from __future__ import annotations

import shutil

import pytest
import tiny
import torch
from bad_input import change_json
from head_files import public_state, write
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, MixtralConfig

from medusa_core.checkpoints.adapters import without_deprecations
from medusa_core.cli.main import main
from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.loading import load, memory
from medusa_core.model import quantization as quantized
from medusa_core.model.quantization import Packing, lm_head_weight, packing_of

bitsandbytes = pytest.importorskip("bitsandbytes")

PROMPTS = [tiny.random_tokens(6, seed) for seed in range(4)]
BF16 = {"atol": 2e-3, "rtol": 2**-7}  # as a CPU with bfloat16 units rounds packed weights
PARENTS, TOKENS = [-1, 0, 0, 1, 2, 3], [3, 5, 7, 9, 11, 2]


@pytest.fixture(autouse=True)
def not_in_c(monkeypatch):
    monkeypatch.setattr(load, "runs_in_c", lambda *_: False)
    monkeypatch.setattr(memory, "runs_in_c", lambda *_: False)


def quantisable(spread=0.1, **changes):
    """A tiny Llama whose layers are whole blocks of 64; a wide spread gives activations beyond 6."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": spread}
    return tiny.build_model(tiny.tiny_config(2, **sizes | changes), seed=1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The model in float32 as files, with heads and a tokenizer."""
    folder = tmp_path_factory.mktemp("plain")
    model = quantisable()
    model.save_pretrained(folder)
    tiny.tiny_tokenizer().save_pretrained(folder)
    write(folder / "heads", public_state(tiny.random_heads(model)))
    return folder


def furthest(engine):
    """How far a node's logits are from those of its branch run alone, relative to their size."""
    cache, model = engine.target.new_cache(16), engine.target.model
    with torch.inference_mode():
        engine.target.prefill(tiny.PROMPT, cache)
        logits, _ = engine.target.verify(tiny.token_tree(PARENTS, TOKENS), cache)
        branches = [[TOKENS[i] for i in tiny.path_to(PARENTS, node)] for node in range(len(PARENTS))]
        alone = [
            model(torch.tensor([tiny.PROMPT + branch]), use_cache=False).logits[0, -1] for branch in branches
        ]
    return max(float((a - b).float().norm() / b.float().norm()) for a, b in zip(logits, alone, strict=True))


def texts(engine, **settings):
    return [tiny.emitted(tiny.run(engine, prompt, max_new_tokens=32, **settings)) for prompt in PROMPTS]


@pytest.mark.sample(1)
@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_greedy_medusa_equals_plain_greedy_of_the_same_quantised_model(plain, quantize):
    engine = tiny.load_from(plain, quantize=quantize)
    model = engine.target.model
    assert not model.model.layers[0].mlp.up_proj.weight.is_floating_point()
    assert furthest(engine) < 1e-5
    fitted = with_heads(engine, heads=tiny.fitted_heads(model))
    expected = [tiny.transformers_greedy(model, prompt, 32) for prompt in PROMPTS]
    assert texts(fitted, method="none") == expected
    assert texts(fitted) == expected
    assert len(tiny.run(fitted, PROMPTS[0], max_new_tokens=32)) < 30  # drafts are kept
    # It is another model than the one in float32, or nothing was quantized.
    whole = tiny.load_from(plain).target.model
    with torch.inference_mode():
        ids = torch.tensor([PROMPTS[0]])
        assert not torch.allclose(model(ids).logits, whole(ids).logits, atol=1e-3)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("quantize", "words"), [("4bit", "bfloat16, 4-bit"), ("8bit", "bfloat16, 8-bit")])
def test_heads_and_lm_head_stay_as_they_are(plain, quantize, words):
    engine = tiny.load_from(plain, dtype="bfloat16", quantize=quantize)
    whole = tiny.load_from(plain, dtype="bfloat16")
    assert medusa_draft(engine).heads.block_weight.dtype == torch.bfloat16
    assert torch.equal(medusa_draft(engine).heads.lm_weight, medusa_draft(whole).heads.lm_weight)
    assert torch.equal(engine.target.model.lm_head.weight, whole.target.model.lm_head.weight)
    assert engine.info.dtype == words
    assert engine.info.parameters == whole.info.parameters  # packed ones are counted as what they stand for
    assert engine.target.vocab_size == tiny.VOCABULARY
    assert furthest(engine) < 0.02
    assert len(texts(engine)[0]) == 32


@pytest.mark.parametrize(("quantize", "apart"), [("4bit", False), ("8bit", True)])
def test_large_activations_join_the_rows_of_8_bits_alone(tmp_path, quantize, apart):
    quantisable(spread=0.35).save_pretrained(tmp_path)
    assert (furthest(tiny.load_from(tmp_path, quantize=quantize)) > 1e-3) == apart


def test_a_base_saved_in_4_bits_loads_as_it_was(plain, tmp_path):
    first = tiny.load_from(plain, quantize="4bit")
    first.target.model.save_pretrained(tmp_path)
    shutil.copytree(plain / "heads", tmp_path / "heads")
    again = tiny.load_from(tmp_path)
    assert again.info.dtype == "float32, 4-bit"
    assert again.info.parameters == first.info.parameters
    assert texts(again) == texts(first)
    with pytest.raises(MedusaError, match="are 4-bit already: drop --quantize 8bit"):
        tiny.load_from(tmp_path, quantize="8bit")


def packed_lm_head(folder, bits):
    """A model saved with an LM head that is packed like every other layer, and what its numbers are."""
    # bitsandbytes' CPU kernel takes rows by 32.
    quantisable(vocab_size=32).save_pretrained(folder)
    kinds = {"load_in_4bit": True} if bits == 4 else {"load_in_8bit": True}
    settings = BitsAndBytesConfig(**kinds, llm_int8_skip_modules=["nothing"])
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=settings, dtype=torch.float32, device_map={"": "cpu"}
    )
    weight = model.lm_head.weight
    assert not weight.is_floating_point()
    if bits == 4:
        numbers = bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
    else:
        numbers = weight.CB * weight.SCB[:, None] / 127
    model.save_pretrained(folder)
    return model, numbers


@pytest.mark.sample(1)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_packed_lm_head_is_made_into_numbers_for_the_heads_that_share_it(tmp_path, bits):
    model, numbers = packed_lm_head(tmp_path, bits)
    torch.testing.assert_close(lm_head_weight(model), numbers, **BF16)
    blocks = tiny.random_heads(quantisable(vocab_size=32))
    write(tmp_path / "heads", public_state(blocks, version=2))
    engine = tiny.load_from(tmp_path)
    assert medusa_draft(engine).heads.shares_lm_head
    torch.testing.assert_close(medusa_draft(engine).heads.lm_weight, numbers, **BF16)
    assert texts(engine) == texts(engine, method="none")


def test_an_adapter_is_merged_into_a_packed_base(plain, tmp_path):
    from peft import LoraConfig, get_peft_model

    with without_deprecations():
        adapted = get_peft_model(quantisable(), LoraConfig(r=4, target_modules=["q_proj", "up_proj"]))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    heads = tmp_path / "heads"
    adapted.save_pretrained(heads)
    write(heads, public_state(tiny.random_heads(quantisable())))
    ids = torch.tensor([PROMPTS[0]])
    with torch.inference_mode():
        bare, merged = (
            tiny.load_from(plain, source, quantize="4bit").target.model(ids).logits
            for source in ("none", str(heads))
        )
        right = adapted(ids).logits
    assert (merged - right).norm() < 0.5 * (bare - right).norm()


def test_a_missing_package_is_named(plain, tmp_path, monkeypatch):
    shutil.copytree(plain, tmp_path / "aqlm")
    change_json(tmp_path / "aqlm" / "config.json", quantization_config={"quant_method": "aqlm"})
    with pytest.raises(MedusaError, match=r"a package that is not installed.*pip install aqlm"):
        tiny.load_from(tmp_path / "aqlm")
    monkeypatch.setattr(quantized, "find_spec", lambda name: None)
    with pytest.raises(MedusaError, match=r"4bit weights need .*: pip install '\.\[quantize\]'"):
        tiny.load_from(plain, quantize="4bit")


def test_the_command_line_quantises_without_a_word_too_many(plain, capfd):
    flags = ["--model", str(plain), "--quantize", "8bit", "--device", "cpu", "--dtype", "bfloat16"]
    assert main(["generate", "abc", *flags, "--tree", "cartesian-4x2x2", "--max-new-tokens", "8"]) == 0
    said = capfd.readouterr().err
    assert "bfloat16, 8-bit on cpu" in said
    assert "MatMul8bitLt" not in said


@pytest.mark.parametrize(
    ("settings", "packing", "words"),
    [
        (None, None, None),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, Packing("bitsandbytes", 4), "4-bit"),
        ({"load_in_8bit": True}, Packing("bitsandbytes", 8), "8-bit"),
        ({"quant_method": "gptq", "bits": 3}, Packing("gptq", 3), "3-bit"),
        ({"quant_method": "awq", "w_bit": 4}, Packing("awq", 4), "4-bit"),
        ({"quant_method": "fp8"}, Packing("fp8", 8), "8-bit"),
        ({"quant_method": "torchao", "quant_type": {}}, Packing("torchao", None), "torchao"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8}}}},
            Packing("compressed-tensors", 8),
            "8-bit",
        ),
    ],
)
def test_what_a_config_says_of_its_weights(settings, packing, words):
    config = tiny.tiny_config(**({} if settings is None else {"quantization_config": settings}))
    assert packing_of(config) == packing
    assert packing is None or packing.words() == words


def test_packed_is_what_is_counted_as_packed(tmp_path):
    """Experts are no linear layers to bitsandbytes: they stay as they are, in model and count."""
    from medusa_core.loading.model_size import base_bytes, model_size

    config = MixtralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    tiny.build_model(config).save_pretrained(tmp_path)
    model = tiny.load_from(tmp_path, quantize="8bit").target.model
    held = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    shape = model_size(tmp_path)
    assert shape.linear < 0.2 * shape.parameters
    assert base_bytes(shape, 4, quantized.packing_for("8bit")) == pytest.approx(held, rel=0.05)
