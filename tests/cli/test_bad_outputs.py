"""Places, accuracies and flags of training that make no sense end in one line, and nothing is begun."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from bad_answers import CPU, refused
from bad_texts import BadFlags

from medusa_core.cli.flags import check_output_file, check_output_folder
from medusa_core.errors import MedusaError
from medusa_core.training import data
from medusa_core.training.encoding import TokenArrays
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.recipes import RECIPES
from medusa_core.trees.search import parse_accuracies, read_accuracies

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

    monkeypatch.setattr("medusa_core.cli.load.load_engine", fail)


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


# --- Accuracies are lists of JSON numbers: nothing else that Python could make a number of is one.


NONE = ("holds no list of numbers a head", "write it anew with calibrate")
RANGE = ("outside 0 to 1", "give shares, not percentages")
FILES = {
    "a number of 400 digits": (f"[[1{'0' * 400}]]", *NONE),
    "a number of 5000 digits": (
        f"[[{'9' * 5000}]]",
        "cannot read accuracies .* as JSON",
        "anew with calibrate",
    ),
    "a number of 300 digits": (f"[[1{'0' * 299}]]", *RANGE),
    "no number": ("[[NaN]]", *RANGE),
    "a dictionary": ('{"accuracies": {"0": [0.5]}}', *NONE),
    "a head that is digits": ('["111"]', *NONE),
    "text": ('[["0.5", "0.25"]]', *NONE),
    "Arabic-Indic digits": ('[["\u0661", "\u0660"]]', *NONE),
    "truth values": ("[[true, false]]", *NONE),
    "nothing": ("[[null]]", *NONE),
    "a number": ("3", *NONE),
}


def test_bad_accuracies_end_in_one_line(command, tmp_path, subtests):
    file = tmp_path / "accuracies.json"
    for name, (content, cause, fix) in FILES.items():
        with subtests.test(name=name):
            file.write_text(content, encoding="utf-8")
            row = BadFlags([], cause, fix)
            refused(command(["tree", "search", "--accuracies", file]), row)
            with pytest.raises(MedusaError):
                read_accuracies(file)


def test_whole_numbers_and_halves_are_shares():
    assert parse_accuracies(json.loads("[[1, 0.5, 0], [0.25]]")) == [[1.0, 0.5, 0.0], [0.25]]
    assert parse_accuracies({"accuracies": [[1]]}) == [[1.0]]


# --- Numbers that no training can have, in the flags of ``train`` and ``fit``: one line, nothing is begun.


CONFIGS = [*(config for config, _ in RECIPES.values()), FitConfig]
HUGE = [1e308, float("inf"), float("nan"), -1e308]
WHOLE = [10**400, -(10**400)]


@pytest.mark.parametrize("config", CONFIGS)
def test_no_setting_takes_an_absurd_number(config):
    numbers = [item for item in fields(config) if type(item.default) in (int, float)]
    assert len(numbers) > 5
    for item in numbers:
        for value in WHOLE if type(item.default) is int else HUGE:
            with pytest.raises(
                MedusaError, match=rf"^{item.name} is .*: (raise it|lower it|give a number.*)$"
            ):
                config(**{item.name: value})


FLAGS = {
    "minutes without end": (["fit", "--minutes", "1e400"], "--minutes is inf, the largest is 100000"),
    "minutes of NaN": (["fit", "--minutes", "nan"], "minutes is nan: give a number from 0.1"),
    "a rate of NaN": (["train", "medusa1", "--learning-rate", "nan"], "--learning-rate is nan"),
    "text instead of tokens": (["train", "medusa1", "--tokens", "many"], "--tokens: invalid int value"),
    "tokens of 400 digits": (["train", "medusa1", "--tokens", "9" * 400], "tokens is 9+"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAGS)
def test_absurd_flags_end_in_one_line(command, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    argv, cause = FLAGS[name]
    code, out, err = command(argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(f"^error: .*{cause}", err), err
    assert not list(tmp_path.iterdir())


def test_answers_longer_than_the_context_are_refused(shop, command):
    code, out, err = command(
        ["train", "self-distill", "--model", shop.engine, "--out", shop.out / "run", "--answers", 2,
         "--answer-tokens", 96, "--train", "nothing", "--prompts", shop.engine / "text.jsonl"]
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert (
        "answers of 96 tokens leave no room for a prompt, the model's context holds 96"
        in err.splitlines()[-1]
    )


@pytest.mark.slow
def test_the_order_of_very_many_windows_repeats(monkeypatch):
    """Laid out whole, that of 10^12 tokens would take gigabytes and minutes."""
    monkeypatch.setattr(data, "MOST_WINDOWS", 10)
    tokens = np.arange(64, dtype=np.uint16)
    mixture = data.PackedMixture([TokenArrays(tokens, np.ones(64, dtype=bool))], [1.0], 4, 10**11, 0, 0)
    first, again = (mixture.batch(number, 10).tokens for number in (0, 10**9))
    assert first.shape == (10, 5)
    assert bool((first == again).all())
