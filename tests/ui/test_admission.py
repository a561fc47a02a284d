"""How many runs and events one page, one address and all of them may have on a public page."""

from __future__ import annotations

import inspect
import threading
import time

import pytest
from served import PATIENCE, engine_taken, wait_until

from ui.serving.admission import (
    LONG,
    RUNS_OF_A_PAGE,
    UNQUEUED_OF_AN_ADDRESS,
    WAITING_EVENTS_OF_AN_ADDRESS,
    WAITING_RUNS,
    WAITING_RUNS_OF_AN_ADDRESS,
    QueuedRequest,
    address_of,
    refusal,
)


def test_one_page_has_two_runs_at_most(site, run):
    values = site.values(run, Prompt="abc")
    with engine_taken(site.session):
        answers = [site.join("greedy", run, values) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * RUNS_OF_A_PAGE + [429] * 3
        assert answers[-1].json()["detail"] == "You already have 2 runs: wait for one to end, or stop it."
        assert site.join("greedy", str(run), values).status_code == 400  # gradio would read "12" as 12
        assert site.join("other", run, values).status_code == 200
    site.idle()
    assert site.join("greedy", run, values).status_code == 200


def test_requests_that_come_together_are_counted_too(site, run):
    values, answers = site.values(run, Prompt="abc"), []
    with engine_taken(site.session):
        threads = [
            threading.Thread(target=lambda: answers.append(site.join("burst", run, values).status_code))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [200] * RUNS_OF_A_PAGE + [429] * 10


@pytest.mark.slow
def test_one_address_leaves_half_of_the_places_to_others(site, run):
    values = site.values(run, Prompt="abc", **{"New tokens at most": 2})
    with engine_taken(site.session):
        assert site.join("first", run, values).status_code == 200
        wait_until(lambda: not len(site.page._queue))  # it waits for the engine inside its run
        mine = [site.join(f"mine{i}", run, values, **{"x-forwarded-for": "1.1.1.1"}) for i in range(12)]
        assert [answer.status_code for answer in mine] == [200] * WAITING_RUNS_OF_AN_ADDRESS + [429] * 2
        assert "10 runs from your address are waiting" in mine[-1].json()["detail"]
        theirs = [site.join(f"theirs{i}", run, values, **{"x-forwarded-for": "9.9.9.9"}) for i in range(10)]
        assert [answer.status_code for answer in theirs] == [200] * 10
        full = site.join("late", run, values, **{"x-forwarded-for": "8.8.8.8"})
        assert full.json()["detail"].startswith("20 runs are waiting, and there is room for no more")
        # Small things still go: a page that opens now shows what it has.
        functions = site.page.fns.items()
        badge = next(number for number, one in functions if one.fn and one.queue and not one.inputs)
        assert site.join("late", badge, []).status_code == 200
    site.idle()


def test_one_address_does_not_take_every_thread(site):
    """What is done at once waits for nobody, so its number at a time is bounded."""
    number = next(number for number, one in site.page.fns.items() if one.fn and not one.queue)
    begun, over = threading.Semaphore(0), threading.Event()
    function = site.page.fns[number]
    usual, answers = function.fn, []

    def slow(*values):
        begun.release()
        over.wait(PATIENCE)
        return usual(*values)

    def ask(name, address="1.1.1.1"):
        body = {"fn_index": number, "session_hash": name, "data": site.values(number)}
        headers = {"x-forwarded-for": address}
        url = f"{site.url}/gradio_api/run/predict"
        answers.append(site.client.post(url, json=body, headers=headers).status_code)

    function.fn = slow
    threads = [threading.Thread(target=ask, args=(f"p{i}",)) for i in range(UNQUEUED_OF_AN_ADDRESS)]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=PATIENCE)
        ask("one-more")
        other = threading.Thread(target=ask, args=("else", "9.9.9.9"))
        other.start()
        assert begun.acquire(timeout=PATIENCE)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        function.fn = usual
    other.join()
    assert answers.pop(0) == 429
    assert answers == [200] * (UNQUEUED_OF_AN_ADDRESS + 1)


def test_a_closed_page_ends_its_run(site, run):
    values = site.values(run, Prompt="abc", **{"New tokens at most": 80})
    assert site.join("leaving", run, values).status_code == 200
    with site.listen("leaving") as messages:
        assert any(message["msg"] == "process_generating" for message in messages)
        assert site.session.busy
    begun = time.monotonic()
    site.idle()
    assert time.monotonic() - begun < 80 * 0.025  # the whole run would take this long at least


def test_refusals_follow_from_who_is_there():
    def asks(count, run=True, waiting=True, **names):
        return [
            QueuedRequest(names.get("page", f"p{i}"), names.get("address", f"a{i}"), run, waiting)
            for i in range(count)
        ]

    me = QueuedRequest("me", "home", run=True)
    assert refusal(me, []) is None
    assert refusal(me, asks(1, page="me", waiting=False)) is None
    assert "2 runs" in refusal(me, asks(1, page="me", waiting=False) + asks(1, page="me"))
    assert refusal(me, asks(WAITING_RUNS - 1)) is None
    assert "20 runs are waiting" in refusal(me, asks(WAITING_RUNS))
    assert refusal(me, asks(WAITING_RUNS_OF_AN_ADDRESS - 1, address="home")) is None
    assert "your address" in refusal(me, asks(WAITING_RUNS_OF_AN_ADDRESS, address="home"))
    # Small things stand in no run's way, nor runs in theirs.
    assert refusal(me, asks(150, run=False, address="home")) is None
    small = QueuedRequest("me", "home", run=False)
    assert refusal(small, asks(WAITING_RUNS, page="me", address="home")) is None
    assert refusal(small, asks(WAITING_EVENTS_OF_AN_ADDRESS, run=False, address="home")) is not None


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.168.1.9", "", "192.168.1.9"),
        ("10.0.0.1", "8.8.8.8", "8.8.8.8"),
        ("10.0.0.1", "1.2.3.4, 8.8.8.8, 10.1.1.1", "8.8.8.8"),  # the first is the visitor's invention
        ("127.0.0.1", "10.0.0.5", "127.0.0.1"),
        ("8.8.4.4", "1.2.3.4", "8.8.4.4"),  # asked directly: nobody has forwarded anything
        ("", "nonsense, ", ""),
        ("2a00:1450:4001:81b::200e", "", "2a00:1450:4001:81b::/64"),  # a visitor has the whole network
        ("10.0.0.1", "2a00:1450:4001:81b:1:2:3:4", "2a00:1450:4001:81b::/64"),
    ],
)
def test_an_address_cannot_be_invented(peer, forwarded, address):
    assert address_of(peer, forwarded) == address


def test_whatever_streams_is_counted(site):
    """A run that joined no queue of its own would escape the limits."""
    streams = [function for function in site.page.fns.values() if inspect.isgeneratorfunction(function.fn)]
    assert len(streams) >= 3
    assert all(function.queue and function.concurrency_id in LONG for function in streams)
