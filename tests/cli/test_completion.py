"""What a shell completes by: every command and flag, as shtab writes it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_the_script_knows_commands_and_flags(command, shell):
    pytest.importorskip("shtab")
    code, out, _ = command(["--print-completion", shell])
    assert code == 0
    assert all(word in out for word in ("generate", "max-new-tokens", "convert", "medusa"))


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_takes_the_script(command):
    pytest.importorskip("shtab")
    script = command(["--print-completion", "bash"])[1]
    ask = "complete -p medusa"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("medusa")


def test_without_shtab_the_error_names_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, _, err = command(["--print-completion", "bash"])
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install shtab" in err
