"""A package that is not installed is one line that says what brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gradio_variables import without_gradios
from paths import ROOT

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from medusa_core.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("package", "command", "what"),
    [("torch", ["generate", "abc"], "pip install . in"), ("gradio", ["app"], "pip install '.[app]' in")],
)
def test_it_names_what_to_install(package, command, what):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *command], cwd=ROOT, capture_output=True, text=True,
        env=without_gradios(PYTHONPATH=str(ROOT)), timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"error: the package {package} is not installed: {what} the project's folder\n"


def test_a_module_of_our_own_that_is_missing_stays_a_traceback():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "medusa_core.cli.commands.tree", "tree", "show", "vicuna_7b_stage2"],
        cwd=ROOT, capture_output=True, text=True, env=without_gradios(PYTHONPATH=str(ROOT)), timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
