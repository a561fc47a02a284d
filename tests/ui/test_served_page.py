"""A served page: forged values are refused, and idle, leaving or unread pages cost it little."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time

import pytest
from http_fuzz import fuzz
from recording_server import recording_server
from served import DONE, PRIVATE, PUBLIC, launched, words_of

from ui.records.updates import StopFlag
from ui.serving.admission import UNREAD, Rate
from ui.serving.page_routes import PageChannel
from ui.serving.policy import policy_of


@pytest.fixture(scope="module")
def race(site):
    """The comparison's event, and a function for the values that the page would send with one changed."""
    numbers = [number for number in site.page.fns if "setting-second-method" in str(classes(site, number))]
    (number,) = [number for number in numbers if site.page.fns[number].queue and site.page.fns[number].fn]

    def values(**changes):
        sent = site.values(number, Prompt="abc", **{"New tokens at most": 2})
        for name, value in changes.items():
            sent[classes(site, number).index([f"setting-second-{name}"])] = value
        return sent

    return number, values


def classes(site, number):
    return [getattr(block, "elem_classes", None) for block in site.page.fns[number].inputs]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "changes",
    [{"method": "../x"}, {"method": None}, {"tree": "/etc/passwd"}, {"acceptance": ["match"]},
     {"heads": "yours"},
     {"budget": 65}, {"budget": "6"}, {"temperature": 0.5}, {"epsilon": {"path": "/etc/passwd"}}],
)  # fmt: skip
def test_a_value_that_the_control_cannot_have(site, race, changes):
    number, values = race
    answer = site.join("forger", number, values(**changes))
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"].endswith(".")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": "nan"}, "nan"),
        ({"epsilon": "1e999"}, "Epsilon is inf"),
        ({"delta": "<img src=x>"}, "of the second lane is"),
    ],
)
def test_a_text_that_is_no_setting(site, race, changes, words):
    number, values = race
    site.idle()
    told = str(site.outcome("forger", number, values(**changes)))
    assert words in told
    assert "Measured." not in told


# --- A number that a field of the page does not take is refused with the field's limits, however large it is.


LARGEST = 2**31 - 1


@pytest.mark.parametrize("seed", [-4, 99999999999999999999, 10**400, 2**31])
def test_a_seed_beyond_its_limits_is_refused_with_them(site, run, seed):
    answer = site.join("odd", run, site.values(run, Prompt="abc", Seed=seed))
    assert answer.status_code == 400
    words = answer.json()["detail"]
    assert words.startswith(f"“Seed” is {str(seed)[:24]}")
    assert words.endswith(f": choose a number from 0 to {LARGEST}.")
    assert "reload" not in words
    assert len(words) < 100


def test_so_is_a_slider_s_value(site, run):
    answer = site.join("odd", run, site.values(run, Prompt="abc", Temperature=7))
    assert answer.json()["detail"] == "“Temperature” is 7: choose a number from 0.0 to 2.0."


# --- A page that asks for runs and never fetches what they send costs the server no more than so much memory.


FEW = {"New tokens at most": 4}


@pytest.fixture
def little_room(monkeypatch):
    monkeypatch.setattr("ui.serving.admission.MOST_UNREAD", 30)
    monkeypatch.setattr("ui.serving.http_guard.MOST_UNREAD_OF_A_PAGE", 20)


def unread(site):
    return {name: queue.qsize() for name, queue in site.page._queue.pending_messages_per_session.items()}


@pytest.mark.usefixtures("little_room")
def test_a_page_that_does_not_listen_is_refused_after_some_runs(site, run):
    for _ in range(20):
        answer = site.join("deaf", run, site.values(run, Prompt="abc", **FEW))
        site.idle()
        if answer.status_code != 200:
            break
    assert answer.status_code == 429
    assert answer.json()["detail"] == UNREAD
    assert unread(site)["deaf"] < 40
    with site.listen("deaf") as messages:
        assert DONE in words_of(list(messages))
    assert unread(site).get("deaf", 0) == 0


@pytest.mark.usefixtures("little_room")
def test_what_many_pages_leave_unread_is_forgotten(site, run):
    for number in range(12):
        answer = site.join(f"deaf-{number}", run, site.values(run, Prompt="abc", **FEW))
        assert answer.status_code == 200
        site.idle()
    assert sum(unread(site).values()) < 30 + 20
    assert "deaf-0" not in unread(site)
    with site.listen("deaf-11") as messages:
        assert DONE in words_of(list(messages))
    assert DONE in words_of(site.outcome("deaf-0", run, site.values(run, Prompt="abc", **FEW)))


# --- An idle page's queue looks for events about a hundred times a second, not a thousand as gradio's own.


def test_an_idle_page_hardly_wakes(site, monkeypatch):
    waking, sleep = [], asyncio.sleep

    def noted(seconds, *result):
        waking.append((threading.get_ident(), seconds))
        return sleep(seconds, *result)

    site.idle()
    monkeypatch.setattr(asyncio, "sleep", noted)
    time.sleep(0.5)
    server = site.page.server.thread.ident  # pages of other tests may be served meanwhile
    own = [seconds for thread, seconds in waking if thread == server]
    assert 0 < len(own) < 100  # gradio itself would look at an empty queue five hundred times


# --- Pages that open while another one closes: its runs are stopped all the same.


@pytest.fixture
def switching():
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_a_page_that_opens_does_not_disturb_one_that_closes():
    channel, over, kept = PageChannel(), threading.Event(), []

    def open_pages():
        while not over.is_set():
            kept.append(StopFlag())
            channel.belongs(kept[-1], f"other {len(kept)}")
            if len(kept) > 4000:
                kept.clear()

    opening = threading.Thread(target=open_pages)
    opening.start()
    try:
        for number in range(600):
            mine = StopFlag()
            channel.belongs(mine, f"mine {number}")
            channel.page_left(f"mine {number}")
            assert mine.stopped
    finally:
        over.set()
        opening.join()


# --- A fuzz of the HTTP surface: no failure without a sentence, no traceback, no fetch, a run works after.


TRAINING = policy_of({"SPACE_ID": "me/space", "MEDUSA_TRAINING": "1"})


def surface(site, share, seed=0):
    site.page.states._new = Rate(10**6)  # each wrong event comes from a page of its own
    with recording_server() as (elsewhere, asked):
        found = fuzz(site, elsewhere, random.Random(seed), share)
    assert found.faults == []
    assert asked == []
    return found.asked


def test_some_wrong_requests_of_every_kind(site):
    """This is the last test with the page of all, which has many other pages and their runs to keep then."""
    assert surface(site, share=0.02) > 40


@pytest.mark.slow
@pytest.mark.parametrize("policy", [PUBLIC, TRAINING, PRIVATE], ids=["public", "training", "private"])
def test_all_wrong_requests(engine_folder, policy):
    with launched(engine_folder, policy) as site:
        assert surface(site, share=1.0) > 2000
