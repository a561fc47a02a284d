"""What is imported when: help and trees wait for no library, ``generate`` for what it needs alone."""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import pkgutil
import runpy
import subprocess
import sys

import pytest
from paths import ROOT

import medusa_core
from medusa_core.cli.main import build_parser
from medusa_core.experiments import experiment_names, load_experiment, load_measurement
from medusa_core.library_messages import collector_paused

SLOW = ("torch", "transformers", "gradio", "accelerate", "peft", "bitsandbytes", "scipy", "pandas")
OPTIONAL = ("peft", "bitsandbytes")  # transformers imports scipy itself where it is there
# Runs a program in a fresh interpreter as the shell does, then tells which slow modules it has imported.
AS_PROGRAM = """
import json, runpy, sys
slow, sys.argv = json.loads(sys.argv[1]), sys.argv[2:]
try:
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in slow if name in sys.modules]))
"""
ALL_HELP = """
import json, sys
from medusa_core.cli.main import main
found = {}
for words in json.loads(sys.argv[1]):
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert end.code == 0, words
    found[" ".join(words)] = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps(found))
"""
LOAD = """
import json, sys
from medusa_core import generate, load
result = generate(load(), "Once upon a time", max_new_tokens=12)
assert len(result.token_ids) == 12
print(json.dumps([name for name in json.loads(sys.argv[1]) if name in sys.modules]))
"""


def run_python(script, *arguments):
    """Standard output and standard error of a script in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def last_line(out):
    return json.loads(out.splitlines()[-1])


def all_parsers(parser, words=()):
    """Every parser below one, by the words that lead to it."""
    found = {words: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= all_parsers(below, (*words, name))
    return found


COMMANDS = all_parsers(build_parser())


@pytest.mark.parametrize(
    "program",
    [
        ["medusa_core", "--help"],
        ["app.py", "--help"],
        ["medusa_core", "tree", "show", "vicuna_7b_stage2"],
        ["medusa_core", "tree", "show", "cartesian-4x2x1", "--json"],
    ],
    ids=" ".join,
)
def test_programs_that_need_no_model_import_nothing_slow(program):
    out, err = run_python(AS_PROGRAM, json.dumps(SLOW), *program)
    assert last_line(out) == []
    assert len(out.splitlines()) > 1
    assert err == ""


def test_help_of_every_command_imports_nothing_slow_and_shows_no_marks_of_docstrings():
    assert len(COMMANDS) > 20
    out, err = run_python(ALL_HELP, json.dumps(sorted(COMMANDS)), json.dumps(SLOW))
    assert {words: slow for words, slow in last_line(out).items() if slow} == {}
    assert (err, out.count("``")) == ("", 0)


def test_every_leaf_of_the_command_line_names_a_function_that_is_there():
    for words, parser in COMMANDS.items():
        leads_on = any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
        run = parser.get_default("run")
        assert leads_on != bool(run), words
        assert run is None or callable(pkgutil.resolve_name(run)), words


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_is_measured_with_its_own_settings(name):
    assert load_measurement(name).Settings is load_experiment(name).Settings


@pytest.mark.slow
def test_the_embedded_model_loads_and_writes_without_optional_packages():
    """From Python; that the command does so too, a test below sees in every run."""
    out, err = run_python(LOAD, json.dumps(OPTIONAL))
    assert last_line(out) == []
    assert err == ""


@pytest.mark.slow
def test_importing_the_page_s_code_does_not_import_training():
    script = (
        "import json, sys, ui.launch; print(json.dumps(sorted({'peft', 'bitsandbytes'} & set(sys.modules))))"
    )
    assert last_line(run_python(script)[0]) == []


def test_type_checkers_see_the_public_names():
    """The imports for type checkers, the list of names and what is really given agree."""
    tree = ast.parse((ROOT / "medusa_core" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    assert checked.test.id == "TYPE_CHECKING"
    seen = {alias.name: node.module for node in checked.body for alias in node.names}
    assert seen == medusa_core._PUBLIC
    assert sorted(seen) == sorted(medusa_core.__all__)
    for name, module in seen.items():
        assert getattr(medusa_core, name) is pkgutil.resolve_name(f"{module}:{name}")


# --- Before its first token ``generate`` imports what it needs alone, and collects no garbage meanwhile.


NOT_NEEDED = (
    "networkx", "gradio", "plotly", "pandas", "starlette", "fastapi", "peft", "bitsandbytes", "tensorboard",
    "medusa_core.training.loop", "medusa_core.evaluation.bench", "medusa_core.engine.chat", "ui",
    # transformers' models, what they are configured and loaded with, and what these import in their turn
    "transformers.modeling_utils", "transformers.core_model_loading", "transformers.models", "accelerate",
    "scipy", "torch._dynamo", "torch.distributed.tensor",
)  # fmt: skip
# Which modules are there once the first token is, and whether the collector ran while they came.
FIRST_TOKEN = """
import gc, json, pkgutil, sys
from medusa_core.cli.main import main
seen, resolve = {}, pkgutil.resolve_name

def importing(name):
    seen.setdefault("importing", gc.isenabled())
    found = resolve(name)
    from medusa_core.loading import load
    work = load._load

    def loading(*arguments):
        seen["loading"] = gc.isenabled()
        return work(*arguments)

    load._load = loading
    return found

pkgutil.resolve_name = importing
assert main(["generate", "Once upon a time", "--max-new-tokens", "2"]) == 0
found = [name for name in json.loads(sys.argv[1]) if name in sys.modules]
print(json.dumps({"found": found, "collecting": seen, "afterwards": gc.isenabled()}))
"""


def test_generate_imports_nothing_it_does_not_need_and_collects_nothing_meanwhile():
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TOKEN, json.dumps(NOT_NEEDED)], cwd=ROOT, capture_output=True, text=True,
        timeout=300, env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["found"] == []
    assert said["collecting"] == {"importing": False, "loading": False}
    assert said["afterwards"]


def test_the_end_of_a_command_does_not_wait_for_a_last_collection(monkeypatch, capsys):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(capsys.readouterr().out))
    monkeypatch.setattr(sys, "argv", ["medusa_core", "tree", "show", "cartesian-4x2x1"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("medusa_core", run_name="__main__")
    assert end.value.code == 0
    assert len(frozen) == 1
    assert frozen[0]  # by then all was done


@collector_paused()
def failing():
    assert not gc.isenabled()
    raise ValueError("within")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_afterwards_as_it_was(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="within"):
            failing()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
