"""What Train, Measured here and the race show before anything has run: records shipped, broken, made anew."""

from __future__ import annotations

import json

import pytest

from tools import record_opening, record_race
from ui.records.examples import ASSETS, RACE_FILE, recorded_race
from ui.records.messages import encoded
from ui.runs.session import Session
from ui.runs.verdict import first_difference
from ui.tabs.openings import FILES, RecordedHardware, RecordedTraining, recorded, write_opening
from ui.tabs.train import gain_table

MOST_BYTES = 60_000


def test_the_shipped_training_learned_something_and_is_labelled():
    assert (ASSETS / FILES[RecordedTraining]).stat().st_size < MOST_BYTES
    training = recorded(RecordedTraining, ASSETS)
    first, last = training.curves.losses[0], training.curves.losses[-1]
    assert len(last.heads) == 5
    assert all(now < before for now, before in zip(last.heads, first.heads, strict=True))
    assert training.curves.scores
    assert training.gain.tokens_per_step > training.gain.fresh_tokens_per_step
    assert training.origin.words.startswith("Recorded, not measured here: embedded")
    shown, measured = gain_table(training.gain, now=False), gain_table(training.gain)
    assert "here and now" not in shown
    assert "on that machine" in shown
    assert "here and now" in measured
    assert "on this machine" in measured


def test_the_shipped_measurements_have_all_three_parts():
    assert (ASSETS / FILES[RecordedHardware]).stat().st_size < MOST_BYTES
    hardware = recorded(RecordedHardware, ASSETS)
    assert len(hardware.passes.measured) == len(hardware.passes.predicted) > 1
    assert len(hardware.growth.cached) > 1
    assert {row[0] for row in hardware.kinds.rows} == {"MHA", "GQA", "MQA"}
    assert hardware.origin.words.startswith("Recorded, not measured here: embedded")


@pytest.mark.parametrize("kind", FILES)
def test_a_broken_record_is_left_out_with_a_line_and_none_is_no_matter(tmp_path, caplog, kind):
    assert recorded(kind, tmp_path) is None
    assert not caplog.records
    (tmp_path / FILES[kind]).write_text('{"origin": 1}', "utf-8")
    assert recorded(kind, tmp_path) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a recorded opening is left out" in line
    assert len(line) < 600
    assert "\n" not in line


@pytest.mark.slow
def test_measurements_are_recorded_by_the_page_s_own_code_and_read_again(load, assets, tmp_path):
    session = Session(load, assets)
    session.load_own()
    made = record_opening.record_hardware(session)
    write_opening(made, tmp_path / FILES[RecordedHardware])
    assert recorded(RecordedHardware, tmp_path) == made
    assert made.origin.dtype == "float32"


# --- The race that is on screen before anything runs: the shipped one, a broken one, and how it is made.


MOST_RACE_BYTES = 100_000
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
    assert (ASSETS / RACE_FILE).stat().st_size < MOST_RACE_BYTES
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
