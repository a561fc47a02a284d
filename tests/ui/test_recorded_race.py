"""The race that is on screen before anything runs: the shipped one, a broken one, and how it is made."""

from __future__ import annotations

import json

import pytest

from tools import record_race
from ui.records.examples import ASSETS, RACE_FILE, recorded_race
from ui.records.messages import encoded
from ui.runs.session import Session
from ui.runs.verdict import first_difference

MOST_BYTES = 100_000
BREAKS = {
    "cut": lambda text: text[:500],
    "empty": lambda text: "",
    "a list": lambda text: "[1]",
    "without lanes": lambda text: json.dumps({**json.loads(text), "lanes": []}),
    "lanes that are none": lambda text: json.dumps({**json.loads(text), "lanes": [1, 2]}),
    "not recorded": lambda text: json.dumps({**json.loads(text), "recorded": None}),
}


def tokens_of(lane):
    return [token for step in lane["trace"]["steps"] for token in step["emitted"]]


def test_the_shipped_race_is_small_labelled_and_true():
    assert (ASSETS / RACE_FILE).stat().st_size < MOST_BYTES
    race = recorded_race()
    assert [lane["name"] for lane in race["lanes"]] == ["Medusa", "Plain decoding"]
    assert set(race["recorded"]) == {"model", "dtype", "machine", "threads", "torch", "date"}
    texts = [tokens_of(lane) for lane in race["lanes"]]
    assert first_difference(*texts) == race["verdict"]["index"]
    assert race["verdict"]["equal"] == (texts[0] == texts[1])
    for lane, text in zip(race["lanes"], texts, strict=True):
        seconds = sum(step["ms"]["total"] for step in lane["trace"]["steps"]) / 1000
        assert sorted(lane["runs"])[2] == pytest.approx(len(text) / seconds, rel=1e-3)  # the median of five


def test_the_view_gets_it_as_a_message_without_markup():
    message = encoded(recorded_race())
    assert "<" not in message
    assert json.loads(message)["kind"] == "race"


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_race_is_left_out_with_a_line(tmp_path, caplog, name):
    text = (ASSETS / RACE_FILE).read_text("utf-8")
    (tmp_path / RACE_FILE).write_text(BREAKS[name](text), "utf-8")
    assert recorded_race(tmp_path) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the recorded race is left out" in line
    assert "\n" not in line


def test_without_a_race_nothing_is_said(tmp_path, caplog):
    assert recorded_race(tmp_path) is None
    assert not caplog.records


def test_it_is_made_by_the_tabs_own_comparison(load, tmp_path):
    race = record_race.record(Session(load), "abcabc", tokens=8)
    (tmp_path / RACE_FILE).write_text(json.dumps(race), "utf-8")
    assert recorded_race(tmp_path) == race
    assert [len(lane["runs"]) for lane in race["lanes"]] == [5, 5]
    assert [len(tokens_of(lane)) for lane in race["lanes"]] == [8, 8]
    assert race["recorded"]["dtype"] == "float32"
