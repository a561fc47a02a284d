"""Bases whose weights are PyTorch's pickles, as in older repositories: read, and nothing in them run."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
import tiny
import torch
from bad_input import Trap
from pickled_bases import INDEX, WEIGHTS, pickled

from medusa_core.checkpoints.base import load_base
from medusa_core.checkpoints.lm_head import read_lm_head
from medusa_core.errors import MedusaError


@pytest.mark.sample
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "torch before 1.6"])
def test_it_is_the_same_model(engine_folder, model, tmp_path, shards, zipped):
    folder = pickled(engine_folder, tmp_path / "base", shards, _use_new_zipfile_serialization=zipped)
    engine = tiny.load_from(folder)
    own = engine.target.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in model.state_dict().items())
    steps = tiny.run(engine, method="none", max_new_tokens=12)
    assert tiny.emitted(steps) == tiny.transformers_greedy(model, tiny.PROMPT, 12)
    head = read_lm_head(folder)
    assert torch.equal(head, model.get_output_embeddings().weight)


@pytest.mark.sample(2)
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("plain", [False, True], ids=["by torch", "by pickle"])
def test_code_in_it_is_not_run(engine_folder, tmp_path, shards, plain):
    folder, mark = pickled(engine_folder, tmp_path / "base", shards), tmp_path / "executed"
    file = sorted(folder.glob("*.bin"))[-1]
    state = torch.load(file, weights_only=True) | {"lm_head.weight": Trap(mark)}
    if plain:
        file.write_bytes(pickle.dumps(state))
    else:
        torch.save(state, file)
    for read in (tiny.load_from, read_lm_head, load_base):
        with pytest.raises(MedusaError) as caught:
            read(folder)
        assert f"{file.name} holds" in str(caught.value)
        assert "weights_only" not in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_safetensors_are_read_where_there_are_both(engine_folder, tmp_path):
    folder = shutil.copytree(engine_folder, tmp_path / "both", ignore=shutil.ignore_patterns("heads"))
    torch.save({"lm_head.weight": Trap(tmp_path / "executed")}, folder / WEIGHTS)
    tiny.load_from(folder)
    assert not (tmp_path / "executed").exists()


def cut(folder):
    file = folder / WEIGHTS
    file.write_bytes(file.read_bytes()[:3000])


def other(content):
    return lambda folder: torch.save(content, folder / WEIGHTS)


def index(weight_map):
    def damage(folder):
        (folder / WEIGHTS).rename(folder.parent / WEIGHTS)
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")

    return damage


FAULTS = {
    "cut off": (cut, r"pytorch_model\.bin is damaged or cut off"),
    "a list": (other([torch.zeros(2)]), r"pytorch_model\.bin is not a dictionary of tensors"),
    "another model's": (other({"x": torch.zeros(2)}), "lack lm_head.weight"),
    "an index that names a path": (index({"x": f"../{WEIGHTS}"}), "which is not there"),
    "another name": (
        lambda folder: (folder / WEIGHTS).rename(folder / "consolidated.00.pth"),
        r"its weights are in consolidated\.00\.pth, and of pickles only pytorch_model\.bin",
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_ones_are_refused(engine_folder, tmp_path, fault):
    damage, message = FAULTS[fault]
    folder = pickled(engine_folder, tmp_path / "base")
    damage(folder)
    with pytest.raises(MedusaError, match=message) as caught:
        tiny.load_from(folder)
    assert "\n" not in str(caught.value)
