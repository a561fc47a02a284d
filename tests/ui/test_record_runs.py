"""Recorded runs made anew: each with its own prompt, method and settings."""

from __future__ import annotations

import json
import shutil

import pytest
from near_ties import TIE, beside_the_choice

from medusa_core.api import load
from medusa_core.errors import MedusaError
from tools import record_runs
from ui.records.examples import ASSETS

NAMES = ("0-story", "4-booking", "6-EAGLE-3", "8-prompt-lookup")  # greedy and at a temperature


def copied(folder):
    for name in NAMES:
        shutil.copy(next((ASSETS / "traces").glob(f"{name}*")), folder)
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}


def what_was_run(trace):
    config = dict(trace["config"])
    # A tree that a machine chose is the shipped one in the new run, by which it is the same on each machine.
    drafter = config.pop("drafter")["settings"]
    if drafter.get("tree") == "auto":
        drafter["tree"] = "default"
    return trace["prompt"], trace["model"]["dtype"], config, drafter


def test_the_same_weights_make_the_same_runs(tmp_path, capsys):
    before = copied(tmp_path)
    record_runs.main(["--folder", str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES) == len(before)
    for name, old in before.items():
        new = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        assert what_was_run(new) == what_was_run(old)
        assert new["model"] | {"exact": True} == old["model"]  # as with a C compiler
        assert new["output"]["new_tokens"] == old["output"]["new_tokens"]
        if not new["config"]["temperature"]:  # the tokens follow rounding, which differs between machines
            assert max(beside_the_choice(load(dtype=new["model"]["dtype"], device="cpu"), new)) < TIE


def test_some_are_left_as_they_are_and_another_seed_makes_another_run(tmp_path):
    before = copied(tmp_path)
    record_runs.main(["--folder", str(tmp_path), "--seed", "12", "4-booking"])
    after = {name: json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in before}
    assert [name for name in before if after[name] != before[name]] == [
        name for name in before if name.startswith("4-booking")
    ]
    assert {trace["config"]["seed"] for name, trace in after.items() if name.startswith("4")} == {12}


def test_a_name_that_no_recording_has_is_an_error(tmp_path):
    copied(tmp_path)
    with pytest.raises(MedusaError, match="no such recording"):
        record_runs.main(["--folder", str(tmp_path), "nothing"])


def test_a_file_that_is_no_trace_is_named(tmp_path):
    (tmp_path / "broken.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(MedusaError, match=r"broken\.json"):
        record_runs.main(["--folder", str(tmp_path)])
