"""Names of bases and heads, and loading by them: folders, hub repositories, heads that name their base."""

from __future__ import annotations

import shutil

import pytest
import tiny
import torch
from head_files import HIDDEN, hub_repository, public_state, write
from huggingface_hub import constants

from medusa_core.checkpoints.locate import embedded_model, tree_beside
from medusa_core.checkpoints.names import GPU_TREE_NAME, TREE_NAME
from medusa_core.checkpoints.sources import find_sources, split_names
from medusa_core.cli.main import main
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError

BASE = "lmsys/vicuna-7b-v1.3"
BASE_KEY = "base_model_name_or_path"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub cache: what lies in it is what the hub has, since no test reaches the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def heads(model):
    return tiny.random_heads(model, 5)


# --- the hub's repositories, as they are laid out there ----------------------------------------------------


def test_a_revision_is_another_version_of_a_repository(hub, base, model, tmp_path):
    hub_repository(hub, BASE, base)
    for count, revision in ((2, "main"), (4, "refs/pr/7")):
        heads = public_state(tiny.random_heads(model, count))
        folder = write(tmp_path / str(count), heads, config={BASE_KEY: BASE})
        hub_repository(hub, "a/heads", folder, revision, commit=str(count) * 40)
    assert medusa_draft(tiny.load_from("", "a/heads")).heads.count == 2
    assert medusa_draft(tiny.load_from("", "a/heads@refs/pr/7")).heads.count == 4
    assert medusa_draft(tiny.load_from("", "a/heads@" + "2" * 40)).heads.count == 2
    assert tiny.load_from(BASE, "a/heads@refs/pr/7").info.heads == "a/heads@refs/pr/7"
    with pytest.raises(MedusaError, match="'a/heads@v9' is neither a folder here nor"):
        tiny.load_from("", "a/heads@v9")


# --- folders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["absolute", "from here", "from the heads", "embedded"])
def test_heads_in_a_folder_name_their_base(base, heads, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    name = {"absolute": str(base), "from here": "base", "from the heads": "../../base"}.get(how, how)
    folder = write(tmp_path / "a" / "b", public_state(heads), config={BASE_KEY: name})
    for sources in (find_sources("", str(folder)), find_sources(str(folder), "")):
        assert sources.heads == folder
        expected = embedded_model() if how == "embedded" else base
        assert sources.base.resolve() == expected.resolve()
        assert (sources.base_name, sources.heads_name) == ("embedded" if how == "embedded" else "base", "b")
    assert find_sources(str(folder), "none").heads is None


def test_names_that_mean_a_model(engine_folder, heads, tmp_path):
    other = write(tmp_path / "other", public_state(heads))
    assert find_sources("", "").base_name == "embedded"
    assert find_sources("", "").heads == embedded_model() / "heads"
    assert find_sources("", "none").heads is None
    own = find_sources(str(engine_folder), "")
    assert (own.base, own.heads, own.heads_name) == (engine_folder, engine_folder / "heads", "heads")
    assert find_sources(str(engine_folder), str(other)).heads == other
    # A model's folder is a good name for the heads in it.
    assert find_sources(str(engine_folder), str(engine_folder)).heads == engine_folder / "heads"


FAULTS = {
    "no base named": ({}, "do not name their base: give the base with --model, the heads with --heads"),
    "a base that is no name": ({BASE_KEY: 7}, "do not name their base"),
    "a base that is gone": (
        {BASE_KEY: "a/gone"}, r"belong to a base that is missing: 'a/gone' is neither .*; or give --model"
    ),
    "a folder that is gone": ({BASE_KEY: "/gone"}, "to a base that is missing: there is no folder /gone"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_heads_whose_base_cannot_be_had(tmp_path, heads, fault):
    config, message = FAULTS[fault]
    folder = write(tmp_path / "heads", public_state(heads), config=config)
    with pytest.raises(MedusaError, match=message):
        find_sources("", str(folder))


def test_heads_for_a_model_and_other_heads_are_refused(tmp_path, heads):
    folder = write(tmp_path / "heads", public_state(heads), config={BASE_KEY: BASE})
    with pytest.raises(MedusaError, match="holds heads and no model: give --model the base of the heads x/y"):
        find_sources(str(folder), "x/y")


def test_a_folder_without_heads_is_said_to_be_one(tmp_path, engine_folder):
    with pytest.raises(MedusaError, match="are missing: no medusa_lm_head"):
        find_sources("", str(tmp_path))
    with pytest.raises(MedusaError, match="holds no heads"):
        tiny.load_from(engine_folder, tmp_path)


# --- when the hub says no ----------------------------------------------------------------------------------

NAMES = {
    "offline": ("a/b", "HF_HUB_OFFLINE is set and it is not in the cache; unset it, or name a folder"),
    "a revision offline": ("a/b@main", "HF_HUB_OFFLINE is set"),
    "no name": ("a b", "that is not the name of a repository; write owner/name"),
    "a long name": ("a" * 5000, "that is not the name of a repository"),
    "a null byte": ("a\0b", "that is not the name of a repository"),
    "a path": ("./nowhere", "there is no folder ./nowhere: check the path"),
    "nobody's home": ("~nobody-at-all/x", "there is no folder ~nobody-at-all/x"),
    "too many slashes": ("a/b/c", "there is no folder a/b/c"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_cannot_be_had_end_in_one_line(hub, capsys, name):
    given, message = NAMES[name]
    with pytest.raises(MedusaError) as caught:
        find_sources(given, "")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    if name == "offline":
        assert main(["generate", "x", "--heads", given]) == 2
        assert message in capsys.readouterr().err


# --- ``--heads A+B`` names weights of several drafters; an empty name is told before any file is looked for.


@pytest.mark.parametrize("names", ["heads+", "+heads", "+", "heads++more", "none+heads", "heads+none"])
def test_every_part_is_a_name(names, tmp_path, engine_folder):
    names = names.replace("heads", str(engine_folder / "heads"))
    with pytest.raises(MedusaError, match=r"names no weights: write A\+B, or none alone"):
        find_sources(str(engine_folder), names)


def test_names_are_taken_apart(tmp_path):
    assert split_names("a + b") == ["a", "b"]
    assert split_names("none") == ["none"]
    assert split_names("") == [""]
    (tmp_path / "a+").mkdir()
    assert split_names(str(tmp_path / "a+")) == [str(tmp_path / "a+")]


# --- Loading a whole engine from folders: heads found, damage refused with its cause named.


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
    loaded = tiny.load_from(engine_folder, tmp_path / "other")
    assert medusa_draft(loaded).heads.count == 5
    assert medusa_draft(loaded).tree("default").size == 16  # searched, since these heads bring no tree
