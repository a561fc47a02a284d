"""``heads check``, ``calibrate``, ``convert`` and ``fit`` for weights that are no Medusa heads."""

from __future__ import annotations

import json
import shutil

import eagle3_files
import pytest
import small_model
from bad_answers import CPU
from hydra_heads import random_hydra
from tokenswift_heads import random_tokenswift

from medusa_core.drafters.hydra.files import save_heads
from medusa_core.drafters.medusa import NAME
from medusa_core.drafters.tokenswift import files as swift_files

KINDS = ("hydra", "tokenswift", "eagle3", "draft_model")
HEADS = ("hydra", "tokenswift")


@pytest.fixture(scope="module")
def folders(engine, tmp_path_factory):
    """Weights of each kind for the tiny model."""
    root, model = tmp_path_factory.mktemp("weights"), engine.target.model
    eagle3_files.write(root / "eagle3", eagle3_files.state(), eagle3_files.config())
    embedding = model.get_input_embeddings().weight
    save_heads(random_hydra(model, prefix=False), root / "hydra", "tiny", embedding)
    swift_files.save_heads(random_tokenswift(model), root / "tokenswift", "tiny")
    small_model.first_layers(model).save_pretrained(root / "draft_model")
    model.save_pretrained(root / "itself")
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_check_says_how_often_the_guesses_are_right(command, shop, folders, kind):
    flags = ["--model", shop.engine, "--heads", folders / kind, "--json", *CPU]
    code, out, err = command(["heads", "check", *flags])
    assert code == 0, err
    report = json.loads(out)
    assert report["one"] == ("head" if kind in HEADS else "guess")
    assert report["positions"] > 64
    assert len(report["heads"]) == 3
    assert f"{report['one']} 1 is right" in report["message"]
    if kind == "eagle3":  # random weights know nothing of the model
        assert report["verdict"] in ("doubtful", "unclear")
        assert "the weights of EAGLE-3" in report["message"]


def test_a_draft_model_that_is_the_model_itself_is_always_right(command, shop, folders):
    flags = ["--model", shop.engine, "--heads", folders / "itself", *CPU]
    code, out, err = command(["heads", "check", "--json", *flags])
    assert code == 0, err
    assert [row["accuracy"] for row in json.loads(out)["heads"]] == [1.0, 1.0, 1.0]
    _, out, _ = command(["heads", "check", *flags])
    assert "guess accuracy  without it\n   1    100.0%" in out


@pytest.mark.parametrize("kind", HEADS)
def test_calibrate_counts_other_heads_and_times_their_trees(command, shop, folders, tmp_path, kind):
    out = tmp_path / "accuracies.json"
    code, _, err = command(
        ["calibrate", "--model", shop.engine, "--heads", folders / kind, "--prompts",
         shop.engine / "text.jsonl", "--limit", 2, "--max-new-tokens", 16, "--rounds", 1, "--sizes", "1,4",
         "--out", out, *CPU]
    )  # fmt: skip
    assert code == 0, err
    record = json.loads(out.read_text("utf-8"))
    assert len(record["accuracies"]) == 3
    assert all(row == sorted(row, reverse=True) for row in record["accuracies"])
    assert [point["nodes"] for point in record["latency"]] == [1, 4]
    code, found, err = command(["tree", "search", "--accuracies", out, "--nodes", 6, "--json"])
    assert code == 0, err
    assert len(json.loads(found)["choices"]) == 6


@pytest.mark.parametrize("kind", ["eagle3", "draft_model"])
def test_calibrate_refuses_drafters_without_a_fixed_tree(command, shop, folders, kind):
    code, out, err = command(["calibrate", "--model", shop.engine, "--heads", folders / kind, *CPU])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "makes a new tree in every step" in err
    assert all(flag in err for flag in ("--draft-top-k", "--draft-depth", "--draft-nodes", "bench"))


@pytest.mark.parametrize("kind", KINDS)
def test_convert_names_what_it_was_given(command, folders, tmp_path, kind):
    code, out, err = command(["convert", folders / kind, tmp_path / "out", "--to", "v1"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    words = {
        "hydra": "Hydra heads",
        "tokenswift": "TokenSwift",
        "eagle3": "EAGLE-3",
        "draft_model": "a whole language model and no heads",
    }
    assert f"holds {words[kind]}: convert is for Medusa heads" in err
    assert "name the folder with --heads as it is" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("hydra", "eagle3", "brings none: name them with --heads, or use --method hydra"),
        ("draft_model", NAME, "train some with the command fit, or use --method draft"),
    ],
)
def test_weights_of_another_method_are_refused_in_a_sentence(command, shop, folders, kind, asked, words):
    flags = ["--model", shop.engine, "--heads", folders / kind, "--method", asked, *CPU]
    code, _, err = command(["generate", "abc", *flags])
    assert (code, err.count("\n")) == (2, 1)
    assert words in err


def test_a_draft_model_with_code_of_its_own_is_refused_with_the_way_out(command, shop, folders, tmp_path):
    own = shutil.copytree(folders / "draft_model", tmp_path / "own")
    config = json.loads((own / "config.json").read_text("utf-8"))
    homemade = {"model_type": "homemade", "auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    (own / "config.json").write_text(json.dumps(config | homemade), "utf-8")
    (own / "modeling.py").write_text("raise SystemExit('this ran')", "utf-8")
    for flags in ([], ["--trust-remote-code"]):
        code, _, err = command(["generate", "abc", "--model", shop.engine, "--heads", own, *flags, *CPU])
        assert (code, err.count("\n")) == (2, 1)
        assert "needs Python code of its own, which is run for a base alone: name a smaller model" in err
    # A known kind loads by transformers' own code, whatever its config brings besides.
    known = config | {"auto_map": homemade["auto_map"]}
    (own / "config.json").write_text(json.dumps(known), "utf-8")
    flags = ["--method", "draft_model", "--max-new-tokens", 4]
    code, _, err = command(["generate", "abc", "--model", shop.engine, "--heads", own, *flags, *CPU])
    assert code == 0, err
