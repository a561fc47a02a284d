"""Further drafters in folders beside a model: found without a flag, each loaded for its method."""

from __future__ import annotations

import shutil
from dataclasses import replace

import eagle3_files
import pytest
import small_model
import tiny
import torch

from medusa_core.cli.load import load_for_runs
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory
from ui.serving.models import badge_of

BROUGHT = ["draft_model", "eagle3"]


@pytest.fixture(scope="module")
def load(engine, engine_folder, tmp_path_factory):
    """A model with heads and two further drafters."""
    folder = tmp_path_factory.mktemp("own") / "model"
    shutil.copytree(engine_folder, folder)
    tensors = eagle3_files.state(vocabulary=engine.target.vocab_size)
    said = eagle3_files.config(vocab_size=engine.target.vocab_size)
    eagle3_files.write(folder / "drafters" / "eagle3", tensors, said)
    small_model.first_layers(engine.target.model).save_pretrained(folder / "drafters" / "small")
    return LoadConfig(str(folder), dtype="float32", device="cpu")


def test_every_method_runs_and_gives_the_plain_text(load, engine_folder):
    engine = load_engine(load)
    assert list(engine.drafts) == ["medusa", "eagle3", "draft_model"]
    config = GenerationConfig.of(max_new_tokens=24, ignore_eos=True)
    plain = tiny.emitted(engine.stream(tiny.PROMPT, config.changed(method="none")))
    for name in ("medusa", *BROUGHT, "eagle3+ngram"):
        assert name in engine.methods()
        assert tiny.emitted(engine.stream(tiny.PROMPT, config.changed(method=name))) == plain
    assert engine.info.name.count("+") == 1  # shared by every run; the method is said with the run
    assert badge_of(engine).split(" · ")[1].endswith("and 2 other drafters")
    bare = LoadConfig(str(engine_folder), dtype="float32", device="cpu")
    assert estimate_memory(load).heads > estimate_memory(bare).heads


def test_a_run_loads_those_of_its_method_alone(load):
    assert list(load_for_runs(load, [GenerationConfig(method="none")]).drafts) == ["medusa"]
    runs = [GenerationConfig(method="eagle3+ngram")]
    assert list(load_for_runs(load, runs).drafts) == ["medusa", "eagle3"]


def test_named_weights_come_first_and_none_leaves_all_out(load):
    assert list(load_engine(replace(load, heads="none")).drafts) == []
    named = load_engine(replace(load, heads=f"{load.model}/drafters/eagle3"))
    assert list(named.drafts) == ["eagle3", "draft_model"]
    assert (named.info.drafts, len(named.info.own_drafts)) == (("EAGLE-3",), 1)


def test_a_folder_without_weights_is_left_out_with_a_warning(load, tmp_path, caplog):
    folder = tmp_path / "model"
    shutil.copytree(load.model, folder)
    for name in (".ipynb_checkpoints", "half a copy"):
        (folder / "drafters" / name).mkdir()
    engine = load_engine(replace(load, model=str(folder)))
    assert list(engine.drafts) == ["medusa", "eagle3", "draft_model"]
    assert "half a copy holds no weights" in caplog.text
    assert "ipynb" not in caplog.text


def test_memory_of_drafters_that_a_run_does_not_need_is_not_counted(load):
    told = []
    for methods in (["none"], None):
        load_engine(load, lambda stage: told.append(stage.estimate), methods=methods)
        told.append("end")
    alone, whole = told[told.index("end") - 1], told[-2]
    assert alone.heads < whole.heads


def test_weights_that_do_not_fit_are_named(load, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(load.model, folder)
    eagle3_files.write(
        folder / "drafters" / "again", eagle3_files.state(), {**eagle3_files.config(), "vocab_size": 24}
    )
    with pytest.raises(MedusaError, match="holds weights for --method eagle3, which has some already"):
        load_engine(replace(load, model=str(folder)))
    shutil.rmtree(folder / "drafters" / "again")
    torch.save({}, folder / "drafters" / "eagle3" / "model.safetensors")
    with pytest.raises(MedusaError, match="drafters/eagle3"):
        load_engine(replace(load, model=str(folder)))
