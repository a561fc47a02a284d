"""Loading a whole engine from folders: heads found, damage refused with its cause named."""

from __future__ import annotations

import shutil

import pytest
import tiny
import torch
from head_files import HIDDEN, public_state, write
from safetensors.torch import load_file

from medusa_core.checkpoints.locate import tree_beside
from medusa_core.checkpoints.names import GPU_TREE_NAME, TREE_NAME
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError


def test_the_heads_beside_the_model_are_found(engine, engine_folder, tmp_path):
    loaded = tiny.load_from(engine_folder)
    assert torch.equal(medusa_draft(loaded).heads(HIDDEN), medusa_draft(engine).heads(HIDDEN))
    assert (loaded.info.drafts, loaded.info.dtype, loaded.info.device) == (
        ("3 Medusa heads",),
        "float32",
        "cpu",
    )
    assert loaded.info.parameters == sum(p.numel() for p in engine.target.model.parameters())
    beside = tmp_path / "beside"
    shutil.copytree(engine_folder, beside)
    (beside / "heads" / "medusa_lm_head.safetensors").rename(beside / "medusa_lm_head.safetensors")
    assert medusa_draft(tiny.load_from(beside)).heads.count == 3
    (beside / "medusa_lm_head.safetensors").unlink()
    assert tiny.load_from(beside).drafts == {}


@pytest.mark.parametrize(
    ("device", "file"), [("cpu", "tree.json"), ("cuda", "tree-gpu.json"), ("mps", "tree-gpu.json")]
)
def test_each_kind_of_device_has_its_tree(tmp_path, device, file):
    assert tree_beside(tmp_path, torch.device(device)) is None
    (tmp_path / TREE_NAME).write_text("[[0]]", encoding="utf-8")
    assert tree_beside(tmp_path, torch.device(device)).name == "tree.json"
    (tmp_path / GPU_TREE_NAME).write_text("[[0], [1]]", encoding="utf-8")
    assert tree_beside(tmp_path, torch.device(device)).name == file


def test_other_heads_can_be_named(engine_folder, model, tmp_path):
    write(tmp_path / "other", public_state(tiny.random_heads(model, 5)), "pt")
    loaded = tiny.load_from(engine_folder, heads=str(tmp_path / "other"))
    assert medusa_draft(loaded).heads.count == 5
    assert medusa_draft(loaded).tree("default").size == 16  # searched, since these heads bring no tree


def test_tied_weights_are_not_missing(tmp_path):
    model = tiny.build_model(tiny.tiny_config(tie_word_embeddings=True))
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    weights = tiny.load_from(tmp_path).target.model.get_output_embeddings().weight
    assert torch.equal(weights, model.get_input_embeddings().weight)


def test_a_missing_device_is_named(engine_folder):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(MedusaError, match="no cuda device here: use --device"):
        tiny.load_from(engine_folder, device="cuda")
