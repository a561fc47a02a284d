"""Further drafters in folders beside a model: found without a flag, loaded by method, with their settings."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import eagle3_files
import pytest
import small_model
import tiny
import torch
from page_runs import SETTINGS

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.cli.load import load_for_runs
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import draft_of, drafter_settings
from medusa_core.drafters._options import usual_settings
from medusa_core.errors import MedusaError
from medusa_core.experiments.eagle3_table1 import read_temperatures
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory
from medusa_core.longrun.run import settings_of
from medusa_core.trace.header import header_of
from ui.components.controls import usual_in_menu
from ui.records.lanes import SecondLane
from ui.records.settings import RunSettings, Selection, make_config
from ui.runs.session import Session
from ui.serving.models import badge_of
from ui.tabs.layout import build_page

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


# --- Settings that weights bring for their drafter count where a run gives none of its own.


BROUGHT_SETTINGS = {"draft_top_k": 2, "draft_depth": 3, "draft_nodes": 4}


@pytest.fixture(scope="module")
def folder(load, tmp_path_factory):
    return shutil.copytree(load.model, tmp_path_factory.mktemp("tuned") / "model")


def loaded(folder, text):
    (folder / "drafters" / "eagle3" / "draft.json").write_text(text, encoding="utf-8")
    return load_engine(LoadConfig(str(folder), dtype="float32", device="cpu"))


def of_run(engine, **changes):
    config = GenerationConfig.of(method="eagle3", **changes)
    return drafter_settings(config, draft_of(engine.drafts, config))


def test_they_are_those_of_a_run_and_of_its_trace(folder):
    engine = loaded(folder, "\ufeff" + json.dumps({"cpu": BROUGHT_SETTINGS}))  # as some editors write it
    config = GenerationConfig.of(method="eagle3", max_new_tokens=24, ignore_eos=True)
    assert max(step.tree.size for step in engine.stream(tiny.PROMPT, config)) == 5
    assert header_of(engine, config, tiny.PROMPT)["config"]["drafter"]["settings"] == BROUGHT_SETTINGS
    assert settings_of(engine, config)["draft_nodes"] == 4
    merged = GenerationConfig.of(method="eagle3+ngram")
    assert drafter_settings(merged, draft_of(engine.drafts, merged)).draft_nodes == 4
    assert usual_settings({"eagle3": BROUGHT_SETTINGS})["ngram"]["draft_nodes"] == 15


def test_a_run_s_own_come_first_and_another_device_has_the_defaults(folder):
    engine = loaded(folder, json.dumps({"cpu": BROUGHT_SETTINGS}))
    assert (of_run(engine, draft_nodes=30).draft_nodes, of_run(engine, draft_nodes=30).draft_depth) == (30, 3)
    assert of_run(loaded(folder, json.dumps({"cuda": BROUGHT_SETTINGS}))).draft_nodes == 59


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "draft.json is not JSON .*: correct it"),
        ("[]", "draft.json is not a JSON object: correct it"),
        ('{"CPU": {"draft_nodes": 3}}', "names a device 'CPU': use cpu, cuda, mps"),
        ('{"cpu": 3}', "draft.json has no settings by device"),
        ('{"cpu": {"nodes": 3}}', "draft.json: no setting is called 'nodes', use draft_top_k"),
        ('{"cpu": {"tree": "/etc/passwd"}}', "no setting is called 'tree'"),
        ('{"cpu": {"draft_nodes": 1000}}', "draft_nodes is 1000, the largest is 128"),
        ('{"cuda": {"draft_nodes": "4"}}', "give a whole number"),
        ('{"cpu": {"draft_nodes": true}}', "give a whole number"),
    ],
)
def test_a_file_that_says_nonsense_is_refused_by_its_name(folder, text, said):
    with pytest.raises(MedusaError, match=said):
        loaded(folder, text)


def test_the_page_knows_them_and_the_second_lane_does_not_take_them_for_chosen(folder):
    engine = loaded(folder, json.dumps({"cpu": BROUGHT_SETTINGS}))
    shown = json.loads(usual_in_menu({"eagle3": engine.drafts["eagle3"].settings}))
    assert {name: shown["eagle3"][name] for name in BROUGHT_SETTINGS} == BROUGHT_SETTINGS
    first = RunSettings.of(**SETTINGS | shown["eagle3"] | {"method": "eagle3"})
    second = SecondLane(method="ngram").settings(first, engine.drafts)
    assert drafter_settings(make_config(second)).draft_nodes == 15
    chosen = replace(first, options={**first.options, "draft_nodes": 20})
    second = SecondLane(method="ngram").settings(chosen, engine.drafts)
    assert drafter_settings(make_config(second)).draft_nodes == 20


def test_a_folder_in_the_place_of_the_settings_is_refused(folder):
    file = folder / "drafters" / "eagle3" / "draft.json"
    file.unlink(missing_ok=True)
    file.mkdir()
    try:
        with pytest.raises(MedusaError, match=r"draft\.json .*: correct it"):
            load_engine(LoadConfig(str(folder), dtype="float32", device="cpu"))
    finally:
        file.rmdir()


def test_the_page_has_those_of_the_embedded_model_before_it_is_loaded():
    session = Session(LoadConfig(device="cpu"))
    components = build_page(session).config["components"]
    before = {one["props"]["value"] for one in components if one["props"].get("label") == "Usual settings"}
    session.load_own()
    (kept,) = before
    assert kept == usual_in_menu(session.models.settings_brought(Selection()))
    brought = json.loads((embedded_model() / "drafters" / "eagle3" / "draft.json").read_text())["cpu"]
    assert json.loads(kept)["eagle3"].items() >= brought.items()


def test_another_model_s_are_not_known_before_it_is_loaded(folder):
    session = Session(LoadConfig(str(folder), dtype="float32", device="cpu"))
    assert session.models.settings_brought(Selection()) == {}


def test_temperatures_of_the_table_are_numbers_each_once():
    assert read_temperatures("0,0.7,0") == [0.0, 0.7]
    for wrong in ("", "hot", "nan", "-1", "3", "0,"):
        with pytest.raises(MedusaError, match="give numbers from 0 to 2"):
            read_temperatures(wrong)
