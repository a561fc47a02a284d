"""A recording brings the settings along that make such a run, and the page limits say what they cut."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from trace_factory import make_trace

from medusa_core.acceptance import rule_settings
from medusa_core.config import LoadConfig
from medusa_core.trees.tree import published_trees
from ui.layout import build_page
from ui.records.examples import recordings
from ui.records.settings import MAX_PROMPT_CHARACTERS, RunSettings, check_prompt, make_config, settings_of
from ui.records.updates import StopFlag
from ui.serving.page_channel import PageChannel
from ui.session import Session
from ui.tabs.run_bar import STARTING, WAITING, _arm


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
    assert settings_of(trace)["tree"] == "auto"


@pytest.fixture(scope="module")
def parts():
    """The components of the page, by id or class of a setting."""
    page = build_page(Session(LoadConfig()))
    return [block for block in page.blocks.values() if hasattr(block, "value")]


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
    assert "a training has it" in _arm(training, flag, "a key", "a page")
    assert not flag.stopped
