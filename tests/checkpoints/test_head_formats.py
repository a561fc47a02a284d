"""Heads in vLLM's format and inside whole models are read as any others; wrong configs are reported."""

from __future__ import annotations

import logging
import shutil

import pytest
import tiny
import torch
from head_files import HIDDEN, D, load, public_state, vllm_state, write, write_full, write_vllm
from safetensors.torch import load_file, save_file

from medusa_core.checkpoints.files import Layout, layout_of
from medusa_core.checkpoints.heads import read_heads
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.drafters.medusa.heads import MedusaHeads, TruncatedHeads
from medusa_core.errors import MedusaError

V = tiny.VOCABULARY


@pytest.fixture
def lm_head(model):
    return model.get_output_embeddings().weight


# --- vLLM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "layers"), [(1, 1), (5, 1), (2, 3)])
def test_vllm_heads(tmp_path, model, lm_head, count, layers):
    heads = tiny.random_heads(model, count, layers)
    folder = write_vllm(tmp_path, vllm_state(heads))
    read = load(folder, lm_head)
    assert layout_of(folder) is Layout.VLLM
    assert (read.count, read.layers, read.shares_lm_head) == (count, layers, False)
    assert torch.equal(read(HIDDEN), heads(HIDDEN))


def test_vllm_heads_called_as_its_own_trainers_call_them(tmp_path, model, lm_head):
    heads = tiny.random_heads(model)
    state = {f"medusa_heads.{name}": tensor for name, tensor in vllm_state(heads).items()}
    assert torch.equal(load(write_vllm(tmp_path, state), lm_head)(HIDDEN), heads(HIDDEN))


@pytest.mark.parametrize("name", ["lm_head.weight", "lm_heads.0.weight"])
def test_one_lm_head_for_all_vllm_heads(tmp_path, model, lm_head, name):
    """It is the base's, which the heads then use; or else its own, of which each of them has a copy."""
    heads = tiny.random_heads(model)
    shared = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    state = vllm_state(shared)
    state[name] = state.pop("lm_head.weight")
    read = load(write_vllm(tmp_path / "a", state, original_lm_head=True), lm_head)
    assert read.shares_lm_head
    assert torch.equal(read(HIDDEN), shared(HIDDEN))
    state[name] = state[name] + 1
    read = load(write_vllm(tmp_path / "b", state, original_lm_head=True), lm_head)
    assert not read.shares_lm_head
    assert torch.allclose(read(HIDDEN), MedusaHeads(*shared.parameters(), lm_head + 1)(HIDDEN), atol=1e-5)


def test_vllm_heads_without_biases(tmp_path, model, lm_head):
    heads = tiny.random_heads(model)
    heads.block_bias.data.zero_()
    state = {name: tensor for name, tensor in vllm_state(heads).items() if not name.endswith("bias")}
    folder = write_vllm(tmp_path, state, medusa_fc_bias=False)
    assert torch.equal(load(folder, lm_head)(HIDDEN), heads(HIDDEN))
    assert read_heads(folder).notes == ()


def test_heads_that_know_a_part_of_the_vocabulary(tmp_path, model, lm_head):
    """vLLM's ``token_map``: row r of a last layer is token ``token_map[r]``, all others are impossible."""
    whole = tiny.random_heads(model)
    known = torch.tensor([7, 0, 3, 21, 20, 11, 5, 9, 1, 17, 13])
    state = vllm_state(whole)
    for i in range(3):
        state[f"lm_heads.{i}.weight"] = state[f"lm_heads.{i}.weight"][known].clone()
    folder = write_vllm(tmp_path, state | {"token_map": known}, truncated_vocab_size=11)
    read = load(folder, lm_head)
    assert isinstance(read, TruncatedHeads)
    slow = torch.full((3, 4, V), -torch.inf)
    for token in known.tolist():
        slow[..., token] = whole(HIDDEN)[..., token]
    assert torch.allclose(read(HIDDEN), slow, atol=1e-5)
    assert torch.equal(read(HIDDEN, 2), read(HIDDEN)[:2])
    with pytest.raises(MedusaError, match="know only 11 tokens of their base, which only vLLM's format"):
        save_heads(read, tmp_path / "v1", "base")
    # They draft as others do: greedy decoding with them is plain greedy decoding.
    engine = tiny.build_engine(model, read)
    assert tiny.emitted(tiny.run(engine, max_new_tokens=20)) == tiny.transformers_greedy(
        model, tiny.PROMPT, 20
    )


def test_a_token_map_beside_whole_last_layers_is_left_out(tmp_path, model, lm_head):
    """vLLM would cut the rows; all of them are there, so all of them are used."""
    heads = tiny.random_heads(model)
    folder = write_vllm(tmp_path, vllm_state(heads) | {"token_map": torch.arange(5)}, truncated_vocab_size=5)
    assert torch.equal(load(folder, lm_head)(HIDDEN), heads(HIDDEN))
    assert "token_map of 5 tokens is left out" in read_heads(folder).notes[0]


NOTES = {
    "heads": ({"num_heads": 2}, "says num_heads 2, the file holds 3"),
    "layers": ({"num_hidden_layers": 4}, "says num_hidden_layers 4, the file holds 1"),
    "width": ({"hidden_size": 4096}, "says hidden_size 4096, the file holds 32"),
    "biases": ({"medusa_fc_bias": False}, "does not set medusa_fc_bias, so vLLM drops"),
    "scale": ({"logit_scale": 0.5}, "logit_scale 0.5 is ignored"),
}


@pytest.mark.parametrize("fault", NOTES)
def test_a_vllm_config_that_disagrees_is_reported(tmp_path, model, fault):
    changes, message = NOTES[fault]
    right = {"num_heads": 3, "num_hidden_layers": 1, "hidden_size": D, "logit_scale": 1.0}
    state = vllm_state(tiny.random_heads(model))
    assert read_heads(write_vllm(tmp_path, state, **right)).notes == ()
    (note,) = read_heads(write_vllm(tmp_path, state, **(right | changes))).notes
    assert message in note


# --- whole models ------------------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("count", "layers"), [(3, 1), (2, 2)])
def test_heads_inside_a_model(tmp_path, engine_folder, model, lm_head, shards, count, layers):
    heads = tiny.random_heads(model, count, layers)
    folder = write_full(tmp_path / "full", engine_folder, heads, shards)
    assert layout_of(folder) is Layout.FULL
    assert torch.equal(load(folder, lm_head)(HIDDEN), heads(HIDDEN))
    engine = tiny.load_from(folder)
    assert torch.equal(medusa_draft(engine).heads(HIDDEN), heads(HIDDEN))
    assert (engine.info.name, engine.info.heads) == (f"full + {count} Medusa heads", "full")
    own = engine.target.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in model.state_dict().items())


def test_only_the_heads_of_a_model_are_read(tmp_path, engine_folder, model, lm_head):
    """Shards without heads are not opened: one of them may even be broken."""
    heads = tiny.random_heads(model)
    folder = write_full(tmp_path / "full", engine_folder, heads, 1)
    (folder / "model.safetensors").unlink()
    state = {f"medusa_head.{name}": tensor for name, tensor in public_state(heads).items()}
    save_file(state, folder / "model-00002-of-00002.safetensors")
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"damaged")
    index = '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", ' + ", ".join(
        f'"{name}": "model-00002-of-00002.safetensors"' for name in state
    )
    (folder / "model.safetensors.index.json").write_text(index + "}}", encoding="utf-8")
    assert torch.equal(load(folder, lm_head)(HIDDEN), heads(HIDDEN))


def test_a_tensor_missing_from_the_base_of_a_full_model_is_an_error(tmp_path, engine_folder, model):
    folder = write_full(tmp_path / "full", engine_folder, tiny.random_heads(model), 1)
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MedusaError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        tiny.load_from(folder)


# --- what is said about it ---------------------------------------------------------------------------------


def test_a_config_that_disagrees_is_said_when_an_engine_loads(engine_folder, model, tmp_path, caplog):
    """The hub's v1.3 configs say 2 heads while their files hold 5."""
    shutil.copytree(engine_folder, tmp_path / "model")
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1}
    shutil.rmtree(tmp_path / "model" / "heads")
    write(tmp_path / "model" / "heads", public_state(tiny.random_heads(model, 5)), config=config)
    with caplog.at_level(logging.WARNING):
        engine = tiny.load_from(tmp_path / "model")
    assert engine.info.drafts == ("5 Medusa heads",)
    assert engine.info.notes == ("config.json says medusa_num_heads 2, the file holds 5, which is used",)
    assert caplog.messages == [f"warning: heads: {engine.info.notes[0]}"]
    assert tiny.load_from(engine_folder).info.notes == ()
