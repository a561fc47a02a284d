"""Before its first token ``generate`` imports what it needs alone, and collects no garbage meanwhile."""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys

import pytest
from paths import ROOT

from medusa_core.loading.collector import collector_paused

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
