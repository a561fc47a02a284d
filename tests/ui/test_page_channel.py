"""The page's direct line to its runs: only the right key stops a run, and nothing odd does any harm."""

from __future__ import annotations

import copy
import gc
import json

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ui.records.updates import StopFlag
from ui.serving.kept import KeptRuns
from ui.serving.page_routes import DRAWN, MOST_BYTES, STEPS, STOP, TRACE, PageChannel, page_routes
from ui.serving.update_stream import MOST_UNDRAWN

KEY = "0123456789abcdef-decode"


@pytest.fixture
def channel():
    return PageChannel()


@pytest.fixture
def browser(channel):
    return TestClient(Starlette(routes=page_routes(channel, KeptRuns())))


def test_stop_raises_the_flag_of_its_key_and_no_other(channel, browser):
    mine, other = StopFlag(), StopFlag()
    channel.listen(KEY, mine)
    channel.listen(KEY + "2", other)
    assert browser.post(STOP, content=json.dumps({"key": KEY})).status_code == 204
    assert mine.stopped
    assert not other.stopped
    assert browser.post(STOP, content=json.dumps({"key": "f" * 32})).status_code == 204
    assert not other.stopped


def test_a_flag_has_one_key_and_goes_with_its_page(channel):
    flag = copy.deepcopy(StopFlag())  # as gradio makes one a page
    for number in range(100):
        channel.listen(f"{KEY}-{number}", flag)
    channel.stop(f"{KEY}-98")
    assert not flag.stopped
    channel.stop(f"{KEY}-99")
    assert flag.stopped
    assert len(channel._keys) == 1
    del flag
    gc.collect()
    assert len(channel._keys) == 0


def test_a_page_that_has_gone_stops_its_runs_and_no_others(channel):
    mine, also, other = (copy.deepcopy(StopFlag()) for _ in range(3))
    for flag, page in ((mine, "a"), (also, "a"), (other, "b")):
        channel.belongs(flag, page)
    channel.page_left("a")
    channel.page_left("unknown")
    assert (mine.stopped, also.stopped, other.stopped) == (True, True, False)
    del mine, also, other, flag
    gc.collect()
    assert len(channel._pages) == 0


@pytest.mark.parametrize("key", ["", "short", "x" * 65, "spaces in a key of some length", "ключ" * 8])
def test_a_key_that_could_be_guessed_or_is_none_is_not_taken(channel, key):
    flag = StopFlag()
    channel.listen(key, flag)
    assert len(channel._keys) == 0


def test_drawn_messages_are_confirmed_while_the_run_lasts(channel, browser):
    with channel.acks() as acks:
        for _ in range(MOST_UNDRAWN):
            acks.labelled("{}")
        assert acks.wait_seconds() > 1
        said = {"key": acks.key, "number": 2}
        assert browser.post(DRAWN, content=json.dumps(said)).status_code == 204
        assert acks.wait_seconds() < 1
    assert browser.post(DRAWN, content=json.dumps(said)).status_code == 204
    assert len(channel._runs) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"[" * 150, b"\xff\xfe", b'{"key": null}', b'{"key": [1]}',
        b'{"key": "x", "number": "many"}', b'{"key": "x", "number": 1e999}', b'{"key": "x", "number": null}',
        b'{"key": "x", "number": {}}',
    ],
)  # fmt: skip
def test_odd_bodies_are_answered_and_do_nothing(channel, browser, body):
    flag = StopFlag()
    channel.listen(KEY, flag)
    for path in (STOP, DRAWN, STEPS, TRACE):
        assert browser.post(path, content=body).status_code == 400
    assert not flag.stopped


def test_long_bodies_and_other_methods_are_refused(browser):
    for path in (STOP, DRAWN, STEPS, TRACE):
        assert browser.post(path, content=b" " * (MOST_BYTES + 1)).status_code == 413
        assert browser.get(path).status_code == 405
    assert browser.post("/medusa/else").status_code == 404
