"""Heads in the public formats v1 and v2: every kind of file read right, and what is saved comes back."""

from __future__ import annotations

import json

import pytest
import tiny
import torch
from head_files import HIDDEN, load, public_state, write, write_config
from safetensors.torch import save_file

from medusa_core.checkpoints.heads import read_heads
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError


@pytest.fixture
def lm_head(model):
    return model.get_output_embeddings().weight


@pytest.mark.sample
@pytest.mark.parametrize("kind", ["safetensors", "pt", "shards"])
@pytest.mark.parametrize(("count", "layers"), [(5, 1), (2, 3), (12, 1)])
@pytest.mark.parametrize("version", [1, 2])
def test_both_formats_in_every_kind_of_file(tmp_path, model, lm_head, kind, count, layers, version):
    """Twelve heads: "10" sorts before "2" as text, so the numbers have to be read as numbers."""
    heads = tiny.random_heads(model, count, layers)
    if version == 2:
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    read = load(write(tmp_path / "heads", public_state(heads, version=version), kind), lm_head)
    assert (read.count, read.layers, read.shares_lm_head) == (count, layers, version == 2)
    assert torch.equal(read(HIDDEN), heads(HIDDEN))


def test_counts_come_from_the_tensors_not_from_the_config(tmp_path, model, lm_head):
    """The hub's v1.3 configs say 2 heads while their files hold 5."""
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model, 5)))
    write_config(folder, {"medusa_num_heads": 2, "medusa_num_layers": 7, "version": "2"})
    heads = load(folder, lm_head)
    assert (heads.count, heads.layers, heads.shares_lm_head) == (5, 1, False)
    notes = read_heads(folder).notes
    assert len(notes) == 3
    assert notes[0] == "config.json says medusa_num_heads 2, the file holds 5, which is used"
    assert "says medusa_num_layers 7, the file holds 1" in notes[1]
    assert "version 2" in notes[2]


def test_heads_take_the_dtype_of_the_base(tmp_path, model, lm_head):
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model)))
    heads = load(folder, lm_head.to(torch.bfloat16))
    assert {parameter.dtype for parameter in heads.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in heads.parameters())


@pytest.mark.parametrize("version", [1, 2])
def test_saved_heads_come_back(tmp_path, model, lm_head, version):
    lm_head = lm_head.to(torch.bfloat16)
    heads = tiny.random_heads(model, 3, 2).to(torch.bfloat16)
    if version == 2:
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    save_heads(heads, tmp_path / "heads", "some base")
    read = load(tmp_path / "heads", lm_head)
    for name in ("block_weight", "block_bias", "lm_weight"):
        assert torch.equal(getattr(read, name), getattr(heads, name))
    config = json.loads((tmp_path / "heads" / "config.json").read_text(encoding="utf-8"))
    assert config == {
        "base_model_name_or_path": "some base", "medusa_num_heads": 3, "medusa_num_layers": 2,
    } | ({"version": "2"} if version == 2 else {})  # fmt: skip


def test_large_heads_are_saved_in_shards_and_come_back(tmp_path, model, lm_head, monkeypatch):
    monkeypatch.setattr("medusa_core.checkpoints.heads.SHARD_SIZE", "4KB")
    heads = tiny.random_heads(model)
    save_heads(heads, tmp_path / "heads", "base", torch.float32)
    files = list((tmp_path / "heads").glob("*.safetensors"))
    assert len(files) > 2
    assert torch.equal(load(tmp_path / "heads", lm_head)(HIDDEN), heads(HIDDEN))
    files[0].unlink()
    with pytest.raises(MedusaError, match=rf"names {files[0].name}, which is not there"):
        read_heads(tmp_path / "heads")
    (tmp_path / "heads" / "medusa_lm_head.safetensors.index.json").unlink()
    with pytest.raises(MedusaError, match="but lacks"):
        read_heads(tmp_path / "heads")


def test_saving_again_leaves_no_stale_shards(tmp_path, model, lm_head, monkeypatch):
    monkeypatch.setattr("medusa_core.checkpoints.heads.SHARD_SIZE", "4KB")
    save_heads(tiny.random_heads(model, 5), tmp_path / "heads", "base", torch.float32)
    monkeypatch.undo()
    heads = tiny.random_heads(model, 2, seed=1)
    save_heads(heads, tmp_path / "heads", "base", torch.float32)
    assert torch.equal(load(tmp_path / "heads", lm_head)(HIDDEN), heads(HIDDEN))


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_layers_that_are_one_module(tmp_path, model, lm_head, kind):
    """In the public code the layers of a head are the same module: equal tensors, stored once or twice."""
    one = tiny.random_heads(model, 2, 1)
    twice = MedusaHeads(one.block_weight.repeat(1, 3, 1, 1), one.block_bias.repeat(1, 3, 1), one.lm_weight)
    state = public_state(twice)
    if kind == "pt":
        for i in range(2):
            for j in (1, 2):
                state[f"{i}.{j}.linear.weight"] = state[f"{i}.0.linear.weight"]
        write(tmp_path, state, "pt")
    else:  # as safetensors' save_model does: once, and the header says who else it is
        aliases = {
            f"{i}.{j}.linear.{part}": f"{i}.0.linear.{part}"
            for i in range(2) for j in (1, 2) for part in ("weight", "bias")
        }  # fmt: skip
        kept = {name: tensor for name, tensor in state.items() if name not in aliases}
        save_file(kept, tmp_path / "medusa_lm_head.safetensors", aliases)
    read = load(tmp_path, lm_head)
    assert read.layers == 3
    assert torch.equal(read(HIDDEN), twice(HIDDEN))


def test_the_dtype_of_a_file_is_kept_until_heads_are_built(tmp_path, model):
    state = {name: tensor.half() for name, tensor in public_state(tiny.random_heads(model)).items()}
    tensors = read_heads(write(tmp_path, state))
    assert {tensors.block_weight.dtype, tensors.block_bias.dtype, tensors.lm_weight.dtype} == {torch.float16}
