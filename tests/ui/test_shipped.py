"""The recorded runs beside the code: all are good, and a broken one is left out with a line."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from medusa_core.api import load
from medusa_core.config import GenerationConfig, LoadConfig
from ui.records.examples import ASSETS, recordings


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


def test_a_greedy_recording_has_the_text_of_plain_decoding_token_for_token():
    """The page says so of it, and that the forward that made it gives a guess what its token gets alone."""
    engine, compared = load(), 0
    for trace in (recording.trace for recording in recordings()):
        run = {
            name: trace["config"].get(name)
            for name in ("temperature", "max_new_tokens", "penalty", "penalty_window", "ignore_eos")
        }
        if run["temperature"] > 0:
            continue
        given = {name: value for name, value in run.items() if value is not None}
        config = GenerationConfig.of(method="none", acceptance="match", **given)
        steps = engine.stream(trace["prompt"]["token_ids"], config)
        assert [token for step in steps for token in step.emitted] == trace["output"]["token_ids"]
        compared += 1
    assert compared > 1


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
    from ui.layout import build_page  # the whole page takes a while to import
    from ui.session import Session

    shutil.copyfile(ASSETS / "prompts.json", assets / "prompts.json")
    for file in (assets / "traces").iterdir():
        file.write_text("{")
    assert build_page(Session(LoadConfig(), assets)).blocks
    lines = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(lines) == 2
