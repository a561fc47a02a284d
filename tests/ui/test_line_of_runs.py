"""A long run gives way to those that wait: their order, whose time counts, and Stop while it waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from served import PATIENCE, engine_taken, wait_until

from ui.records.updates import StopFlag
from ui.serving import turns
from ui.serving.runner import TimeLimit
from ui.serving.turns import TimeShare, Turns


@pytest.fixture(autouse=True)
def slices_of_one_item(monkeypatch):
    monkeypatch.setattr(turns, "SLICE_SECONDS", 0.0)


@pytest.fixture
def now(monkeypatch):
    """The time, which passes where the test says so."""
    time = [100.0]
    monkeypatch.setattr(turns, "perf_counter", lambda: time[0])
    return time


def waiting(session):
    return len(session._runner.turns._line) - 1


def test_turns_come_in_the_order_of_the_line_and_who_moves_back_is_behind_all():
    line = Turns()
    with line.place() as training:
        assert training.wait(0)
        assert training.move_back() == 0
        assert training.wait(0)
        with line.place() as first, line.place() as second:
            assert training.move_back() == 2
            assert [place.wait(0) for place in (training, first, second)] == [False, True, False]
            assert first.move_back() == 2
            assert [place.wait(0) for place in (training, first, second)] == [False, False, True]
        assert training.wait(0)
    assert not line.taken


def test_a_place_that_is_left_wakes_the_next():
    line = Turns()
    with ThreadPoolExecutor(1) as pool, line.place() as second:
        with line.place() as third:
            assert second.move_back() == 1
            begun = pool.submit(second.wait)
            assert third.wait(PATIENCE)
            assert not second.wait(0)
        assert begun.result(PATIENCE)


def test_the_time_of_others_does_not_count(now):
    share = TimeShare()
    share.begin()
    limit = TimeLimit(StopFlag(), 50.0, share.clock)
    now[0] += 41
    assert share.words == ""
    share.leave(2)
    now[0] += 54
    assert share.clock() == 141  # also while it waits
    words = "used the engine for 41 s of 95 s; the rest went to 2 other runs"
    assert share.words == words
    share.come_back()
    assert share.words == words
    assert not limit.over(None)
    now[0] += 10
    assert share.clock() == 151
    assert share.words.startswith("used the engine for 51 s of 105 s")
    assert limit.over(None) is False  # it is late, and has time to end by itself
    assert limit.words.startswith("Ended after 50 s")


def test_a_slice_has_its_length_before_the_run_gives_way(now, monkeypatch):
    monkeypatch.setattr(turns, "SLICE_SECONDS", 1.0)
    share = TimeShare()
    share.begin()
    assert not share.slice_is_over
    now[0] += 1
    assert share.slice_is_over
    share.leave(1)
    now[0] += 5
    share.come_back()
    assert not share.slice_is_over


def test_each_of_a_stream_of_runs_is_followed_by_a_slice(session):
    log, threads = [], []

    def other(engine):
        log.append("begin")
        if len(threads) < 3:
            join()  # the next visitor waits before this run has ended
        yield "other"
        log.append("end")

    def join():
        ahead = waiting(session)
        threads.append(threading.Thread(target=lambda: list(session.on_engine(other))))
        threads[-1].start()
        wait_until(lambda: waiting(session) > ahead)

    def training(engine):
        join()
        for step in range(6):
            log.append(step)
            yield None

    share = TimeShare()
    updates = list(session.on_engine(training, share=share))
    for thread in threads:
        thread.join(PATIENCE)
    run = ["begin", "end"]
    assert log == [0, *run, 1, *run, 2, *run, 3, 4, 5]
    assert share.runs == 3
    assert None not in updates
    assert not session.busy


def test_a_run_that_does_not_share_keeps_the_engine(session):
    log = []

    def run(engine):
        threads.append(threading.Thread(target=lambda: list(session.on_engine(other))))
        threads[-1].start()
        wait_until(lambda: waiting(session))
        for step in range(3):
            log.append(step)
            yield step

    def other(engine):
        log.append("other")
        yield "other"

    threads = []
    list(session.on_engine(run))
    threads[0].join(PATIENCE)
    assert log == [0, 1, 2, "other"]


@contextmanager
def in_line(session):
    """One more run stands in line, and has the engine from its turn until this is left or `over` is set."""
    over, ahead = threading.Event(), waiting(session)

    def hold(engine):
        while not over.wait(0.01):
            yield "computing"

    thread = threading.Thread(target=lambda: list(session.on_engine(hold)))
    thread.start()
    wait_until(lambda: waiting(session) > ahead)
    try:
        yield over
    finally:
        over.set()
        thread.join(PATIENCE)


def test_stop_is_answered_while_another_run_has_the_engine(session):
    flag, steps, over = StopFlag(), [], []
    with ExitStack() as others:

        def training(engine):
            steps.append("begun")
            over.append(others.enter_context(in_line(session)))
            yield None
            steps.append("kept" if flag.stopped else "not heard")

        for update in session.on_engine(training, flag=flag, share=TimeShare()):
            if "Paused for another run · used the engine" in (update.status or ""):
                flag.stopped = True
            elif "Stopping at its next turn" in (update.status or ""):
                assert steps == ["begun"]  # the other run has the engine
                over[0].set()
    assert steps == ["begun", "kept"]
    assert not session.busy


@pytest.mark.parametrize("share", [None, TimeShare()], ids=["a run", "one that gives way"])
def test_stop_before_the_first_turn_ends_at_once(session, share):
    flag, begun = StopFlag(), []
    with engine_taken(session), ThreadPoolExecutor(1) as pool:
        updates = pool.submit(
            list, session.on_engine(lambda engine: iter([begun.append(1)]), flag=flag, share=share)
        )
        wait_until(lambda: waiting(session))
        flag.stopped = True
        assert [update.status for update in updates.result(PATIENCE)] == ["Stopped before it began."]
        assert session.busy
    assert begun == []


def test_a_page_that_closes_while_its_run_is_paused_leaves_the_line(session):
    closed = []
    with ExitStack() as others:

        def training(engine):
            try:
                others.enter_context(in_line(session))
                yield None
            finally:
                closed.append(waiting(session))

        run = session.on_engine(training, share=TimeShare())
        while "Paused" not in (next(run).status or ""):
            pass
        run.close()
        assert closed == [1]
        assert waiting(session) == 0  # the other run has the engine
    assert not session.busy


def test_who_waits_can_be_told_of_a_run_that_gives_way():
    line = Turns()
    with line.place():
        assert not line.shared
        with line.place(gives_way=True):
            assert line.shared
    assert not line.shared
