"""What Train and Measured here show before anything has run: real records, shipped, broken or made anew."""

from __future__ import annotations

import pytest

from tools import record_opening
from ui.records.examples import ASSETS
from ui.runs.session import Session
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
    assert "here and now" not in gain_table(training.gain, now=False)
    assert "here and now" in gain_table(training.gain)


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
