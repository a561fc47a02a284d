"""A place that cannot be written is noticed before the run whose result it is to hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from bad_answers import CPU, refused
from bad_texts import BadFlags

from medusa_core import MedusaError
from medusa_core.cli.flags import check_output_file, check_output_folder

NOWHERE = "/proc/nobody"  # a file system that takes no files, not even the administrator's
ENGINE = ["--model", "{engine}", *CPU]
TRAIN = ["train", "medusa1", "--data", "{engine}/text.jsonl", "--model", "{engine}"]
COMMANDS = {
    "a trace": BadFlags(
        ["generate", "abc", "--trace", NOWHERE, *ENGINE], "--trace /proc/nobody cannot be written",
        "name another file",
    ),
    "a trace without a name": BadFlags(
        ["generate", "abc", "--trace", "", *ENGINE], "--trace is ''", "name a file"
    ),
    "a trace of a long name": BadFlags(
        ["generate", "abc", "--trace", "x" * 300, *ENGINE], "cannot be written .*too long", "name another"
    ),
    "accuracies": BadFlags(
        ["calibrate", "--out", NOWHERE, *ENGINE], "--out /proc/nobody cannot be written", "name another file"
    ),
    "accuracies without a name": BadFlags(
        ["calibrate", "--out", "", *ENGINE], "--out is ''", "name a file"
    ),
    "a record": BadFlags(
        ["reproduce", "table2", "--quick", "--out", NOWHERE, *ENGINE], "--out /proc/nobody cannot", "name"
    ),
    "a record in a new folder": BadFlags(
        ["reproduce", "table2", "--quick", "--out", NOWHERE + "/new/x.json", *ENGINE],
        "--out /proc/nobody/new cannot be written to", "name another folder",
    ),
    "a fit": BadFlags(
        ["fit", "--plan", "--out", NOWHERE, *ENGINE[:2]], "--out /proc/nobody cannot be written to", "name"
    ),
    "a fit without a name": BadFlags(
        ["fit", "--plan", "--out", "", *ENGINE[:2]], "--out is ''", "name a folder"
    ),
    "a run": BadFlags([*TRAIN, "--out", NOWHERE], "--out /proc/nobody cannot be written to", "name another"),
    "a run without a name": BadFlags([*TRAIN, "--out", ""], "--out is ''", "name a folder"),
    "fresh heads": BadFlags(
        ["heads", "init", "--model", "{engine}", "--out", NOWHERE], "--out /proc/nobody cannot be", "another"
    ),
    "fresh heads without a name": BadFlags(
        ["heads", "init", "--model", "{engine}", "--out", ""], "--out is ''", "name a folder"
    ),
    "fresh heads called a blank": BadFlags(
        ["heads", "init", "--model", "{engine}", "--out", " "], "--out is ' '", "name a folder"
    ),
}  # fmt: skip


@pytest.fixture
def nothing_is_loaded(monkeypatch):
    def fail(*_args, **_settings):
        pytest.fail("the work began before its outputs were looked at")

    monkeypatch.setattr("medusa_core.cli.progress.load_engine", fail)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no such file system here")
@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_noticed_before_anything_is_loaded(command, shop, monkeypatch, nothing_is_loaded, name):
    monkeypatch.chdir(shop.out)
    row = COMMANDS[name]
    refused(command([part.format(engine=shop.engine) for part in row.argv]), row)
    assert list(shop.out.iterdir()) == []


def test_the_check_leaves_no_file_and_changes_none(tmp_path):
    assert check_output_file(str(tmp_path / "new"), "--out") == tmp_path / "new"
    assert check_output_folder(str(tmp_path / "a" / "b"), "--out") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("kept")
    before = (tmp_path / "old").stat().st_mtime_ns
    check_output_file(str(tmp_path / "old"), "--out")
    assert ((tmp_path / "old").read_text(), (tmp_path / "old").stat().st_mtime_ns) == ("kept", before)


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_permissions_count(tmp_path):
    (tmp_path / "old").write_text("kept")
    (tmp_path / "old").chmod(stat.S_IRUSR)
    with pytest.raises(MedusaError, match=r"old cannot be written \(Permission denied\)"):
        check_output_file(str(tmp_path / "old"), "--out")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(MedusaError, match=r"new cannot be written \(Permission denied\)"):
            check_output_file(str(tmp_path / "new"), "--out")
        with pytest.raises(MedusaError, match="cannot be written to"):
            check_output_folder(str(tmp_path / "folder"), "--out")
    finally:
        tmp_path.chmod(stat.S_IRWXU)
