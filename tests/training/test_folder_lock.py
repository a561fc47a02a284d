"""A run folder belongs to one process at a time, until that process ends, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from paths import ROOT
from training_runs import settings_for

from medusa_core.errors import MedusaError
from medusa_core.training import folder_lock
from medusa_core.training.config import DirectConfig, Medusa1Config, Medusa2Config, SelfDistillConfig
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.folder_lock import LOCK_NAME, locked_folder
from medusa_core.training.recipes import train

HOLD = (
    "import sys, time; from pathlib import Path; from medusa_core.training.folder_lock import locked_folder\n"
    "with locked_folder(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked the folder ``run``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def in_use(folder, process):
    return rf"another process \({process.pid}\) works in {folder}: wait for it, .* choose another --out"


def test_a_killed_process_gives_the_folder_back(holder, tmp_path):
    with pytest.raises(MedusaError, match=in_use(tmp_path / "run", holder)), locked_folder(tmp_path / "run"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK_NAME).exists()
    with locked_folder(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_NAME).read_text() == f"{os.getpid()}\n"


RECIPES = [Medusa1Config, Medusa2Config, DirectConfig, SelfDistillConfig]


def test_no_recipe_and_no_fit_runs_where_another_process_does(holder, trained_base, tmp_path, command):
    run = tmp_path / "run"
    configs = [recipe(**settings_for(trained_base, run)) for recipe in RECIPES]
    for config in configs:
        with pytest.raises(MedusaError, match=in_use(run, holder)):
            next(train(config))
    assert FitConfig().out
    for words in (["fit"], ["train", "medusa1"]):
        code, out, err = command([*words, "--model", trained_base, "--out", run])
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"error: another process ({holder.pid}) works in {run}" in err
    assert [file.name for file in run.iterdir()] == [LOCK_NAME]


def test_a_run_keeps_its_folder_until_it_is_closed(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "run"))
    first = train(config)
    next(first)
    with pytest.raises(MedusaError, match=f"another process \\({os.getpid()}\\) works in"):
        next(train(config))
    first.close()
    again = train(config)
    assert next(again).step == 2
    again.close()


def test_a_run_that_fails_gives_the_folder_back(tmp_path):
    for _ in range(2):
        with pytest.raises(MedusaError, match="there is no file or folder"):
            next(train(Medusa1Config(out=str(tmp_path / "run"), data=str(tmp_path / "nowhere"))))


def test_nothing_stays_of_a_lock_that_is_over_or_of_a_folder_that_was_refused(tmp_path):
    with pytest.raises(MedusaError), locked_folder(tmp_path / "new" / "run"):
        raise MedusaError("no")
    assert not (tmp_path / "new").exists()
    with pytest.raises(MedusaError), locked_folder(tmp_path):
        raise MedusaError("no")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_save_leaves_a_folder_of_others_as_it_was(tmp_path, engine_folder, command):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = command(["generate", "abc", "--model", engine_folder, "--save", tmp_path])
    assert (code, "holds mine.txt and no long run" in err) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_lock_of_another_program_is_not_overwritten(tmp_path):
    (tmp_path / LOCK_NAME).write_text("mine")
    with pytest.raises(MedusaError, match="belongs to another program: choose another --out"):
        locked_folder(tmp_path).__enter__()
    assert (tmp_path / LOCK_NAME).read_text() == "mine"


def test_other_processes_of_the_same_training_share_the_folder(holder, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with locked_folder(tmp_path / "run"):
        pass


def test_windows_locks_a_byte_behind_the_text(tmp_path, monkeypatch):
    calls = []

    class Msvcrt:
        LK_NBLCK = 2

        @staticmethod
        def locking(descriptor, mode, count):
            calls.append((os.lseek(descriptor, 0, os.SEEK_CUR), mode, count))
            if len(calls) > 1:
                raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder_lock, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt)
    with locked_folder(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
        with (
            pytest.raises(MedusaError, match=f"another process .{os.getpid()}. works in"),
            locked_folder(tmp_path),
        ):
            pass
    assert calls == [(2**30, 2, 1)] * 2


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folder_lock, "_lock", refuse)
    with locked_folder(tmp_path):
        pass
    assert "cannot be locked (Operation not supported): start no second process" in caplog.text


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK_NAME).symlink_to(victim)
    with pytest.raises(MedusaError, match="is a link, it would be written through: delete it"):
        locked_folder(tmp_path / "run").__enter__()
    assert victim.read_text() == "mine"
