"""The engine's thread, and Stop, which belongs to the run that was going on."""

from __future__ import annotations

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import PATIENCE, words_of

from ui.records.updates import StopFlag, Update
from ui.runs.decode import DecodeRequest
from ui.serving.page_routes import STOP
from ui.serving.update_stream import Acks, EngineThread, UpdateStream


def thread_names(closed):
    try:
        while True:
            yield threading.current_thread().name
    finally:
        closed.append(threading.current_thread().name)


def test_items_come_from_one_thread_whoever_pulls_them():
    engine, closed = EngineThread(), []
    names = engine.pulled(thread_names(closed))
    with ThreadPoolExecutor(max_workers=3) as pullers:
        found = {pullers.submit(next, names).result() for _ in range(6)}
    names.close()
    assert len(found) == 1
    assert found == set(closed) == {engine.call(lambda: threading.current_thread().name)}
    assert threading.current_thread().name not in found


def test_the_end_and_errors_are_passed_on():
    engine = EngineThread()

    def items():
        yield 1
        raise ValueError("broken")

    pulled = engine.pulled(items())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="broken"):
        next(pulled)
    assert list(engine.pulled(x for x in (1, 2))) == [1, 2]


def test_an_item_is_computed_when_it_is_asked_for_and_calls_run_between():
    engine, computed = EngineThread(), []

    def items():
        for number in range(4):
            computed.append(number)
            yield number

    stream = engine.pulled(items())
    assert next(stream) == 0
    assert engine.call(lambda: list(computed)) == [0]
    assert next(stream) == 1
    assert engine.call(lambda: list(computed)) == [0, 1]
    stream.close()
    assert computed == [0, 1]


def test_a_stream_that_is_dropped_on_the_engines_thread_ends_there_without_waiting():
    engine, closed = EngineThread(), []
    stream = engine.pulled(thread_names(closed))
    next(stream)
    with ThreadPoolExecutor(max_workers=1) as outside:
        outside.submit(engine.call, stream.close).result(timeout=20)  # as the collector may call it there
        outside.submit(engine.call, lambda: None).result(timeout=20)
    assert closed == [engine.call(lambda: threading.current_thread().name)]


def test_a_run_ahead_of_its_page_leaves_the_thread_to_calls_between_two_items():
    engine, over = EngineThread(), threading.Event()

    def items():
        while not over.wait(0.001):
            yield Update(status="more")

    stream = UpdateStream(Acks())
    engine.feed(items(), stream)
    assert engine.call(lambda: 7) == 7
    stream.close()
    assert not over.is_set()
    assert engine.call(lambda: 8) == 8


# --- Stop belongs to the run that was going on: a further press of Run does not take it back.


PAGE, KEY = "impatient", "0123456789abcdef-decode"


def arm(site, page=PAGE, key=KEY):
    """What the browser asks for as Run is pressed, before the run itself."""
    number = next(n for n, function in site.page.fns.items() if function.name == "arm")
    body = {"fn_index": number, "session_hash": page, "data": [None, key]}
    answer = site.client.post(f"{site.url}/gradio_api/run/predict", json=body)
    assert answer.status_code == 200, answer.text


def press_stop(site, key=KEY):
    assert site.client.post(f"{site.url}{STOP}", content=json.dumps({"key": key})).status_code == 204


@pytest.fixture
def steps(monkeypatch):
    """A run whose steps take as long as the test wants: `begun` and `go_on`."""
    begun, go_on = threading.Event(), threading.Event()

    def run(self, engines, flag):
        yield Update('{"kind": "begin"}', "Reading the prompt…")
        begun.set()
        for _ in range(100):
            assert go_on.wait(PATIENCE)
            yield Update('{"kind": "step"}', "Step")
            if flag.stopped:
                break
        words = "seen" if flag.stopped else "not seen"
        yield Update('{"kind": "end"}', f"Stop was {words}.", trace={"steps": []})

    monkeypatch.setattr(DecodeRequest, "run", run)
    yield begun, go_on
    go_on.set()


def press_run(site, run):
    arm(site)
    assert site.join(PAGE, run, site.values(run, Prompt="abc")).status_code == 200


def test_run_pressed_after_stop_does_not_take_the_stop_back(site, run, steps):
    begun, go_on = steps
    press_run(site, run)
    assert begun.wait(PATIENCE)
    press_stop(site)
    arm(site)  # the step that hears of Stop has not come to its end yet
    go_on.set()
    with site.listen(PAGE) as messages:
        assert "Stop was seen." in words_of(list(messages))
    site.idle()


def test_stop_after_a_second_run_was_asked_for_ends_both(site, run, steps):
    begun, go_on = steps
    press_run(site, run)
    assert begun.wait(PATIENCE)
    press_run(site, run)
    press_stop(site)
    go_on.set()
    with site.listen(PAGE) as messages:
        said = words_of(list(messages))
    assert "Stop was seen." in said
    assert "not seen" not in said
    site.idle()


def test_the_time_limit_of_one_run_does_not_stop_the_next():
    button = StopFlag()
    with button.of_run() as first, button.of_run() as second:
        first.stopped = True  # as its time limit does
        assert (button.stopped, second.stopped) == (False, False)
        button.stopped = True
        assert second.stopped
        button.stopped = False
        assert (first.stopped, second.stopped) == (True, True)
    with button.of_run() as third:
        assert not third.stopped


def test_the_flag_of_a_run_crosses_into_another_process():
    button = StopFlag()
    with button.of_run() as mine, mine.crossing():
        copy = pickle.loads(pickle.dumps(mine))
        assert not copy.stopped
        button.stopped = True
        assert copy.stopped
