"""Files made for a visitor: each in a folder of its own, gone after a while, never more than a few."""

from __future__ import annotations

import time

import pytest

from ui.serving.temporary_files import Handout


def names(place):
    return sorted(file.name for file in place.rglob("*") if file.is_file())


def test_a_file_is_there_and_then_gone(tmp_path):
    handout = Handout(tmp_path / "place", seconds=0.3)
    file = handout.make("a.zip", lambda path: path.write_bytes(b"x"))
    assert file.read_bytes() == b"x"
    assert len(file.parent.name) >= 32  # nobody guesses it
    deadline = time.monotonic() + 20
    while file.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "place").iterdir()) == []


def test_the_oldest_goes_when_there_are_too_many(tmp_path):
    handout = Handout(tmp_path, most=2)
    files = [handout.make(f"{n}.zip", lambda path: path.write_bytes(b"x")) for n in range(4)]
    assert names(tmp_path) == ["2.zip", "3.zip"]
    assert len({file.parent for file in files}) == 4


def test_what_fails_leaves_nothing(tmp_path):
    def fail(path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Handout(tmp_path).make("a.zip", fail)
    assert list(tmp_path.iterdir()) == []
