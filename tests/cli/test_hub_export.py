"""The exported ``custom_generate`` folder: whole, on its own, and asked for by its command."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from custom import IDS
from paths import ROOT

from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.cli.main import main
from medusa_core.custom_generate.export import FOLDER, export_custom_generate


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "medusa-loop"
    export_custom_generate(folder)
    return folder


def test_the_exported_code_stands_alone(exported):
    """Every import goes to a file beside it or to a library, and transformers finds every file by itself."""
    from transformers.dynamic_module_utils import get_imports, get_relative_import_files

    code = exported / "custom_generate"
    for file in code.glob("*.py"):
        assert not re.search(r"^\s*(from|import) medusa_core", file.read_text(encoding="utf-8"), re.MULTILINE)
    found = {Path(file).name for file in get_relative_import_files(code / "generate.py")}
    assert found | {"generate.py"} == {file.name for file in code.glob("*.py")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lowest = {line.partition(",")[0] for line in project["dependencies"]}
    required = set((code / "requirements.txt").read_text("utf-8").split())
    assert required <= lowest
    needed = {name for file in code.glob("*.py") for name in get_imports(file)} - sys.stdlib_module_names
    brought = {"numpy", "tqdm"}  # by transformers
    assert needed - brought == {line.partition(">=")[0].replace("-", "_") for line in required}
    assert "custom_generate" in (exported / "README.md").read_text(encoding="utf-8")


def test_the_exported_code_is_imported_as_transformers_does(exported, monkeypatch):
    """What transformers copies are its Python files alone, so nothing else beside them is read."""
    monkeypatch.syspath_prepend(exported)
    before = set(sys.modules)
    try:
        module = importlib.import_module(f"{FOLDER}.generate")
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == FOLDER:
                del sys.modules[name]
    assert module.generate.__module__ == f"{FOLDER}.custom_generate_generate"


SCRIPT = """
    import sys, torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
    folder, code, heads = sys.argv[1:]
    assert not any(name.startswith("medusa_core") for name in sys.modules)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([[1, 2, 0, 3]])
    medusa = {"custom_generate": code, "trust_remote_code": True, "medusa_heads": heads}
    common = {"max_new_tokens": 30, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    plain = model.generate(ids, do_sample=False, **common)
    got = model.generate(ids, do_sample=False, return_dict_in_generate=True, streamer=TextStreamer(tokenizer),
                         medusa_tree="cartesian-4x2x2", **common, **medusa)
    assert torch.equal(got.sequences, plain) and got.medusa_steps < 30
    torch.manual_seed(1)
    drawn = model.generate(input_ids=ids, do_sample=True, top_p=0.9, **common)
    torch.manual_seed(1)
    assert torch.equal(model.generate(input_ids=ids, do_sample=True, top_p=0.9, **common, **medusa), drawn)
    stopped = {"stop_strings": [tokenizer.decode(plain[0, 9:11])], "tokenizer": tokenizer, "do_sample": False}
    short = model.generate(ids, **stopped, **common)
    assert torch.equal(model.generate(ids, **stopped, **common, **medusa), short) and short.shape[1] < 34
    try:
        model.generate(ids, medusa_tree="mc_sim_7b_63", **common, **medusa)
    except ValueError as error:  # the published trees are there; they are for more heads than these
        assert "head" in str(error), error
    else:
        raise SystemExit("the published tree was not used")
    # A repository with weights and custom_generate replaces the model's own generate.
    own = AutoModelForCausalLM.from_pretrained(folder + "-whole", trust_remote_code=True)
    assert torch.equal(own.generate(ids, do_sample=False, **common), plain)
    assert torch.equal(own.generate(inputs=ids, do_sample=False, medusa_heads=heads, **common), plain)
    assert not any(name.startswith("medusa_core") for name in sys.modules)
"""


@pytest.mark.slow
def test_an_exported_folder_runs_where_the_project_is_not(exported, engine_folder, tmp_path):
    """In a process of its own that cannot see this project, as somebody else's machine would run it."""
    model = tmp_path / "model"
    shutil.copytree(engine_folder, model)
    shutil.copytree(engine_folder, tmp_path / "model-whole")
    shutil.copytree(exported / "custom_generate", tmp_path / "model-whole" / "custom_generate")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), model, exported, model / HEADS_FOLDER],
        cwd=tmp_path,
        env=environment | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bcad")


def test_the_folder_asks_for_trust(model, exported):
    with pytest.raises(ValueError, match="trust_remote_code"):
        model.generate(IDS, custom_generate=str(exported), trust_remote_code=False)


def test_the_command_exports_and_overwrites_nothing(tmp_path, capsys):
    folder = tmp_path / "new" / "loop"
    assert main(["export", "custom-generate", str(folder)]) == 0
    assert "custom_generate=" in capsys.readouterr().out
    assert (folder / "custom_generate" / "generate.py").is_file()
    assert main(["export", "custom-generate", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["export", "custom-generate", str(tmp_path / "file")]) == 2
