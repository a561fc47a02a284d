"""Conversions that need the base: its LM head for v2, its adapter merged, itself without the heads in it."""

from __future__ import annotations

import shutil

import pytest
import tiny
import torch
from head_files import BASE_KEY, config_of, heads_of, named_heads, public_state, same, tensors_in, to
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from medusa_core.checkpoints.adapters import without_deprecations
from medusa_core.checkpoints.convert import ConversionRequest, convert
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine

V = tiny.VOCABULARY


# --- v2 and the base's LM head -----------------------------------------------------------------------------


def test_last_layers_that_are_the_lm_head_can_be_left_out(tmp_path, model, base):
    heads = heads_of(model, "copies")
    out = to(named_heads(tmp_path / "a", "v1", heads, base), tmp_path / "b", "v2")
    assert same(tensors_in(out), public_state(heads, version=2))
    back = to(out, tmp_path / "c", "v1")
    assert same(tensors_in(back), public_state(heads))


def test_a_last_layer_of_its_own_is_named(tmp_path, model, base):
    heads = heads_of(model, "copies")
    heads.lm_weight.data[1, 5, 3] += 1
    folder = named_heads(tmp_path / "a", "v1", heads, base)
    with pytest.raises(MedusaError, match=r"head 2 has a last layer of its own \(1 of 24 rows differ"):
        to(folder, tmp_path / "b", "v2")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "base"]  # nothing half-written is left


@pytest.mark.sample
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_the_lm_head_is_found_in_any_family(tmp_path, family, tied):
    """Under the name that family gives it, or the embedding's where they are tied."""
    names = {
        "llama": {"num_key_value_heads": 2, "intermediate_size": 48},
        "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
        "gpt_neox": {"intermediate_size": 48},
    }[family]
    common = {} if family == "gpt2" else {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(family, vocab_size=V, tie_word_embeddings=tied, **common, **names)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "base", max_shard_size="8KB")
    heads = heads_of(model, "copies")
    out = to(named_heads(tmp_path / "a", "v1", heads, tmp_path / "base"), tmp_path / "b", "v2")
    assert same(tensors_in(to(out, tmp_path / "c", "v1")), public_state(heads))


def test_an_lm_head_of_another_dtype(tmp_path, model, base):
    """Heads in half precision of a base in float32: equal once rounded, and that is said."""
    heads = heads_of(model, "copies", torch.bfloat16)
    out = to(named_heads(tmp_path / "a", "v1", heads, base), tmp_path / "b", "v2")
    work = convert(ConversionRequest(str(out), tmp_path / "c", "v1"))
    assert same(tensors_in(tmp_path / "c"), public_state(heads))
    assert any("rounded from torch.float32 to torch.bfloat16" in note for note in work.notes)


# --- bases that were trained with their heads --------------------------------------------------------------


@pytest.fixture
def adapted(tmp_path, base, model):
    """Heads with the adapter of their base beside them, and the merged base's logits."""
    heads = heads_of(model, "own")
    folder = named_heads(tmp_path / "adapted", "v1", heads, base)
    copy = tiny.build_model(model.config)
    copy.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    adapter = LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    with without_deprecations():
        trained = get_peft_model(copy, adapter)
    trained.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    ids = torch.tensor([tiny.PROMPT])
    return folder, trained(ids).logits.detach(), ids


@pytest.mark.parametrize("kind", ["v1", "vllm", "tgi", "trtllm"])
def test_an_adapter_is_merged_for_engines_that_know_none(tmp_path, adapted, model, kind):
    folder, logits, ids = adapted
    with pytest.raises(MedusaError, match=f"for which {kind} has no place: give --merge-base DIR"):
        to(folder, tmp_path / "out", kind)
    merged = tmp_path / "merged"
    work = convert(ConversionRequest(str(folder), tmp_path / "out", kind, merge_base=str(merged)))
    engine = load_engine(LoadConfig(heads=str(tmp_path / "out"), dtype="float32", device="cpu"))
    assert engine.info.base == "merged"
    assert torch.allclose(engine.target.model(ids).logits, logits, atol=1e-4)
    assert not torch.allclose(model(ids).logits, logits, atol=1e-1)
    assert engine.tokenizer is not None
    assert any("was written to" in note for note in work.notes)
    if work.commands and kind != "tgi":
        assert str(merged) in work.commands[0]


def test_shared_heads_share_the_merged_lm_head(tmp_path, adapted, base, model):
    """The adapter changed the LM head: copies of the old one are last layers of their own now."""
    folder, *_ = adapted
    shutil.rmtree(tmp_path / "copies", ignore_errors=True)
    copies = named_heads(tmp_path / "copies", "v1", heads_of(model, "copies"), base)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(folder / name, copies)
    with pytest.raises(MedusaError, match="head 1 has a last layer of its own"):
        to(copies, tmp_path / "out", "v2", merge_base=str(tmp_path / "merged"))


def test_native_heads_keep_their_adapter(tmp_path, adapted):
    folder, logits, ids = adapted
    out = to(folder, tmp_path / "out", "native")
    engine = load_engine(LoadConfig(heads=str(out), dtype="float32", device="cpu"))
    assert torch.allclose(engine.target.model(ids).logits, logits, atol=1e-4)
    with pytest.raises(MedusaError, match="nothing to merge, native heads keep their adapter"):
        to(folder, tmp_path / "again", "native", merge_base=str(tmp_path / "m"))


def test_the_base_of_a_full_model_without_its_heads(tmp_path, base, model):
    full = named_heads(tmp_path / "full", "full", heads_of(model, "own"), base)
    work = convert(ConversionRequest(str(full), tmp_path / "a", "vllm"))
    assert config_of(tmp_path / "a")[BASE_KEY] == str(full)
    assert any("--merge-base DIR writes the base without them" in note for note in work.notes)
    out = to(full, tmp_path / "b", "vllm", merge_base=str(tmp_path / "plain"))
    assert config_of(out)[BASE_KEY] == str(tmp_path / "plain")
    assert not any(name.startswith("medusa") for name in load_file(tmp_path / "plain" / "model.safetensors"))
    assert not any(name.startswith("medusa") for name in config_of(tmp_path / "plain"))
    assert same(load_file(tmp_path / "plain" / "model.safetensors"), load_file(base / "model.safetensors"))


def test_a_model_is_never_overwritten(tmp_path, model, base, adapted):
    folder = named_heads(tmp_path / "a", "v1", heads_of(model, "own"), base)
    before = {file.name: file.read_bytes() for file in base.iterdir()}
    with pytest.raises(MedusaError, match="holds a model, which heads must not replace"):
        to(folder, base, "v1", force=True)
    (tmp_path / "loose").mkdir()
    shutil.copy(base / "model.safetensors", tmp_path / "loose")
    with pytest.raises(MedusaError, match="holds a model, which heads must not replace"):
        to(folder, tmp_path / "loose", "v1", force=True)
    with pytest.raises(MedusaError, match="is where this comes from"):
        to(adapted[0], tmp_path / "out", "v1", merge_base=str(base), force=True)
    assert {file.name: file.read_bytes() for file in base.iterdir()} == before
