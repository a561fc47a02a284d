"""``heads init``: fresh heads for any model say what the base says, and training goes on from them."""

from __future__ import annotations

import shlex
import shutil

import pytest
import tiny
import torch
from head_files import HIDDEN, config_of
from training_corpus import write_corpus

from medusa_core.checkpoints.heads import read_heads
from medusa_core.cli.main import main
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.loading.load import load_engine


@pytest.mark.sample
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("count", "layers"), [(1, 1), (5, 2)])
def test_fresh_heads_say_what_the_base_says(base, model, tmp_path, count, layers, shared):
    out = tmp_path / "heads"
    flags = ["--num-heads", str(count), "--layers", str(layers), *(["--share-lm-head"] if shared else [])]
    assert main(["heads", "init", "--model", str(base), "--out", str(out), *flags]) == 0
    engine = load_engine(LoadConfig(heads=str(out), dtype="float32", device="cpu"))
    assert (medusa_draft(engine).heads.count, medusa_draft(engine).heads.layers) == (count, layers)
    assert medusa_draft(engine).heads.shares_lm_head == shared
    said = model.lm_head(HIDDEN)
    assert torch.allclose(medusa_draft(engine).heads(HIDDEN), said.expand(count, -1, -1), atol=1e-6)
    assert config_of(out)["base_model_name_or_path"] == str(base)


def test_fresh_heads_have_the_dtype_of_the_base(model, tmp_path):
    copy = tiny.build_model(model.config).to(torch.bfloat16)
    copy.save_pretrained(tmp_path / "base")
    assert main(["heads", "init", "--model", str(tmp_path / "base"), "--out", str(tmp_path / "h")]) == 0
    tensors = read_heads(tmp_path / "h")
    assert tensors.lm_weight.dtype == tensors.block_weight.dtype == torch.bfloat16


@pytest.mark.slow
def test_training_goes_on_from_fresh_heads(trained_base, tmp_path, capsys):
    """The command that is printed is the one that works."""
    out = tmp_path / "fresh heads"
    assert main(["heads", "init", "--model", str(trained_base), "--out", str(out), "--num-heads", "2"]) == 0
    printed = capsys.readouterr().out.split("train them: ")[1].strip()
    words = shlex.split(printed)
    assert words[:3] == ["python", "-m", "medusa_core"]
    corpus = write_corpus(tmp_path)
    more = [
        "--out", str(tmp_path / "run"), "--recipe", str(corpus / "recipe.json"), "--data-root", str(corpus),
        "--tokens", "1024", "--batch-tokens", "512", "--sequence-length", "64", "--heldout-windows", "2",
    ]  # fmt: skip
    assert main([*words[3:], *more]) == 0
    assert read_heads(tmp_path / "run" / "heads").count == 2


FAULTS = {
    "no heads": (["--num-heads", "0"], "--num-heads is 0: give 1 to 16"),
    "a million heads": (["--num-heads", "1000000"], "--num-heads is 1000000: give 1 to 16"),
    "no layers": (["--layers", "0"], "--layers is 0: give 1 to 8"),
    "no number": (["--num-heads", "x"], "invalid int value: 'x'"),
    "into the model": (["--out", "base"], "is where this comes from"),
    "into something": (["--out", "full"], "is not empty: name another folder, or use --force"),
    "weights that are damaged": (["--model", "damaged"], "model.safetensors is damaged or cut off"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_made_ends_in_one_line(base, tmp_path, command, monkeypatch, fault):
    flags, message = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    shutil.copytree(base, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"x" * 50)
    before = sorted(file.name for file in tmp_path.iterdir())
    code, _, err = command(["heads", "init", "--model", "base", "--out", "heads", *flags])
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_old_heads_are_replaced_when_asked_for(base, tmp_path):
    out = tmp_path / "heads"
    flags = ["heads", "init", "--model", str(base), "--out", str(out)]
    assert main(flags) == 0
    (out / "tree.json").write_text("[[0]]")  # the old heads' tree
    assert main([*flags, "--num-heads", "2"]) == 2
    assert main([*flags, "--num-heads", "2", "--force"]) == 0
    assert read_heads(out).count == 2
    assert not (out / "tree.json").exists()
