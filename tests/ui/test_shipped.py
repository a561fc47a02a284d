"""The recorded runs beside the code: all are good, each brings its settings, and all can be made anew."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from near_ties import TIE, beside_the_choice
from trace_factory import make_trace

from medusa_core.acceptance import rule_settings
from medusa_core.api import load
from medusa_core.config import LoadConfig
from medusa_core.drafters._options import option_defaults
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import published_trees
from tools import record_runs
from ui.records.examples import ASSETS, recordings
from ui.records.settings import (
    MAX_PROMPT_CHARACTERS,
    MOST_TOKENS,
    RunSettings,
    check_prompt,
    make_config,
    settings_of,
)
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.serving.page_routes import PageChannel
from ui.tabs.layout import build_page
from ui.tabs.run_bar import STARTING, WAITING, _arm


@pytest.fixture
def assets(tmp_path):
    """A folder with two of the recordings, of which the first is to be broken."""
    (tmp_path / "traces").mkdir()
    first, second = sorted((ASSETS / "traces").glob("*.json"))[:2]
    shutil.copyfile(first, tmp_path / "traces" / "1-broken.json")
    shutil.copyfile(second, tmp_path / "traces" / "2-whole.json")
    return tmp_path


def without_steps(file):
    trace = json.loads(file.read_text(encoding="utf-8"))
    del trace["steps"]
    file.write_text(json.dumps(trace), encoding="utf-8")


def pipe(file):
    file.unlink()
    os.mkfifo(file)


BREAKS = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:1000]),
    "empty": lambda file: file.write_bytes(b""),
    "a list": lambda file: file.write_text("[1]"),
    "bytes": lambda file: file.write_bytes(b"\xff\xfe\x00"),
    "without steps": without_steps,
    "a pipe": pipe,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a link to nothing": lambda file: (file.unlink(), file.symlink_to("nowhere")),
}


def test_all_shipped_recordings_are_shown(caplog):
    assert len(recordings()) == len(list((ASSETS / "traces").glob("*.json"))) > 1
    assert not caplog.records
    assert recordings()[0].name == GREEDY[0].name  # beside which the page shows plain decoding's same text


GREEDY = [one for one in recordings() if not one.trace["config"]["temperature"]]


@pytest.fixture(scope="module")
def shipped_engine():
    return load()


@pytest.mark.parametrize("recording", GREEDY, ids=lambda recording: recording.name)
def test_a_greedy_recording_is_what_the_model_would_choose(shipped_engine, recording):
    """The page says so of it. Another processor rounds otherwise, which turns near ties alone."""
    beside = beside_the_choice(shipped_engine, recording.trace)
    assert len(beside) == len(recording.trace["output"]["token_ids"])
    assert max(beside) < TIE
    assert sum(gap > 0 for gap in beside) < len(beside) / 8


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_recording_is_left_out_with_a_line(assets, caplog, name):
    BREAKS[name](assets / "traces" / "1-broken.json")
    (left,) = recordings(assets)
    assert left.name == "Whole"
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a recorded run is left out" in line
    assert "1-broken.json" in line
    assert "\n" not in line


def test_the_page_is_built_without_any_recording(assets, caplog):
    shutil.copyfile(ASSETS / "prompts.json", assets / "prompts.json")
    for file in (assets / "traces").iterdir():
        file.write_text("{")
    assert build_page(Session(LoadConfig(), assets)).blocks
    lines = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(lines) == 2


# --- A recording brings the settings along that make such a run, and the page limits say what they cut.


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_the_settings_of_a_recording_make_its_run(recording):
    config = make_config(RunSettings.of(**recording.settings | {"budget": 16}))
    recorded = recording.trace["config"]
    for name in ("temperature", "max_new_tokens", "seed"):
        assert getattr(config, name) == recorded[name]
    assert (config.method, config.acceptance) == (recorded["drafter"]["name"], recorded["acceptance"]["name"])
    assert recorded["acceptance"]["settings"] == asdict(rule_settings(config))
    assert recording.settings["prompt"] == recording.trace["prompt"]["text"]


def test_a_tree_is_called_by_its_name_in_the_menu():
    name, tree = next(iter(published_trees().items()))
    trace = make_trace()
    trace["config"]["tree"] = tree[::-1]
    assert settings_of(trace)["tree"] == name
    trace["config"]["tree"] = [[0], [1]]
    trace["config"]["drafter"]["settings"] = {"tree": "auto"}
    assert settings_of(trace)["tree"] == "auto"
    trace["config"]["drafter"]["settings"] = {"tree": "default"}
    assert settings_of(trace)["tree"] == "default"


@pytest.fixture(scope="module")
def parts(shipped_page):
    """The components of the page, by id or class of a setting."""
    return [block for block in shipped_page.blocks.values() if hasattr(block, "value")]


def test_the_first_view_shows_the_settings_of_its_recording(parts):
    first = recordings()[0]
    shown = json.loads(next(part for part in parts if part.elem_id == "decode-view").value)
    assert shown["settings"] == first.settings
    controls = [part for part in parts if part.elem_id not in (None, "race-prompt") or part.elem_classes]
    for name, value in first.settings.items():
        mine = [part for part in controls if f"setting-{name}" in (part.elem_classes or [])]
        assert mine[0].value == value, name  # Watch comes first


def test_no_box_cuts_a_pasted_text_without_a_word(parts):
    boxes = [part for part in parts if part.get_block_name() == "textbox" and (part.lines or 0) > 1]
    ids = {box.elem_id for box in boxes}
    assert {"decode-prompt", "race-prompt", "train-text"} <= ids
    assert [box.elem_id for box in boxes if box.max_length] == []


def test_a_prompt_beyond_the_limit_is_refused_with_its_length():
    check_prompt("a" * MAX_PROMPT_CHARACTERS)
    with pytest.raises(Exception, match="has 8001 characters, the page takes 8000"):
        check_prompt("a" * (MAX_PROMPT_CHARACTERS + 1))


def test_waiting_for_the_engine_is_said_only_when_another_run_has_it():
    flag = StopFlag(stopped=True)
    assert (
        _arm(SimpleNamespace(channel=PageChannel(), busy=False, trains=False), flag, "a key", "a page")
        == STARTING
    )
    assert "one run at a time" not in STARTING
    assert (
        _arm(SimpleNamespace(channel=PageChannel(), busy=True, trains=False), flag, "a key", "a page")
        == WAITING
    )
    training = SimpleNamespace(channel=PageChannel(), busy=True, trains=True)
    assert "a training run has it" in _arm(training, flag, "a key", "a page")
    assert not flag.stopped


# --- A recording of another version of the engine is shown, and leaves the controls with what they can hold.


FOREIGN = {
    "a drafter of another version": {
        "drafter": {"name": "oracle", "settings": {"depth": 3, "temperature": "hot", "prompt": 7}}
    },
    "a rule of another version": {"acceptance": {"name": "fair", "settings": {"epsilon": "x", "seed": "y"}}},
    "more tokens than the page makes": {"max_new_tokens": MOST_TOKENS + 1},
    "a temperature beyond the slider": {"temperature": 50.0},
    "a seed beyond the field": {"seed": 10**40},
}  # fmt: skip


def foreign(changes):
    trace = make_trace()
    return trace | {"config": trace["config"] | changes}


@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_its_settings_make_a_run_of_this_page(changes):
    trace = foreign(changes)
    settings = settings_of(trace)
    make_config(RunSettings.of(**settings))
    assert settings["prompt"] == trace["prompt"]["text"]
    numbers = {name for name, default in option_defaults().items() if isinstance(default, int | float)}
    assert set(settings) >= numbers


@pytest.mark.sample(2)
@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_the_page_begins_with_it(changes, tmp_path):
    (tmp_path / "traces").mkdir()
    shutil.copy(ASSETS / "prompts.json", tmp_path)
    (tmp_path / "traces" / "1-foreign.json").write_text(json.dumps(foreign(changes)), "utf-8")
    page = build_page(Session(LoadConfig(), assets=tmp_path))
    run = next(function for function in page.fns.values() if function.name == "work")
    for block in run.inputs:
        if not block.stateful:
            block.preprocess(block.value)  # raises for what is out of range or not in the menu


# --- Recorded runs made anew: each with its own prompt, method and settings.


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
