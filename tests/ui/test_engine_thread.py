"""The engine's thread: everything on one thread, errors and closing passed on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ui.serving.engine_thread import EngineThread


def thread_names(closed):
    try:
        while True:
            yield threading.current_thread().name
    finally:
        closed.append(threading.current_thread().name)


def test_items_come_from_one_thread_whoever_pulls_them():
    engine, closed = EngineThread(), []
    names = engine.iterate(thread_names(closed))
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

    pulled = engine.iterate(items())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="broken"):
        next(pulled)
    assert list(engine.iterate(x for x in (1, 2))) == [1, 2]
