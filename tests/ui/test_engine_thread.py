"""The engine's thread: everything on one thread, errors and closing passed on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ui.records.updates import Update
from ui.serving.engine_thread import EngineThread
from ui.serving.update_stream import Acks, UpdateStream


def thread_names(closed):
    try:
        while True:
            yield threading.current_thread().name
    finally:
        closed.append(threading.current_thread().name)


def fed(engine, items):
    stream = UpdateStream()
    engine.feed(items, stream)
    return stream


def test_items_come_from_one_thread_whoever_pulls_them():
    engine, closed = EngineThread(), []
    names = fed(engine, thread_names(closed))
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

    pulled = fed(engine, items())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="broken"):
        next(pulled)
    assert list(fed(engine, (x for x in (1, 2)))) == [1, 2]


def test_an_item_is_computed_when_it_is_asked_for_and_calls_run_between():
    engine, computed = EngineThread(), []

    def items():
        for number in range(4):
            computed.append(number)
            yield number

    stream = fed(engine, items())
    assert next(stream) == 0
    assert engine.call(lambda: list(computed)) == [0]
    assert next(stream) == 1
    assert engine.call(lambda: list(computed)) == [0, 1]
    stream.close()
    assert computed == [0, 1]


def test_an_item_that_is_asked_for_before_the_last_one_is_done_with_comes_as_well(monkeypatch):
    real = UpdateStream.put

    def put(stream, update):
        real(stream, update)
        time.sleep(0.01)  # the reader asks for the next item meanwhile

    monkeypatch.setattr(UpdateStream, "put", put)
    with ThreadPoolExecutor(max_workers=1) as reader:
        items = reader.submit(list, fed(EngineThread(), (number for number in range(5))))
        assert items.result(timeout=20) == [0, 1, 2, 3, 4]


def test_a_stream_that_is_dropped_on_the_engines_thread_ends_there_without_waiting():
    engine, closed = EngineThread(), []
    stream = fed(engine, thread_names(closed))
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
