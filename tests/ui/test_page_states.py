"""Which pages a server keeps: the open ones always, of the others a few of each address."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import gradio as gr
import pytest
from served import wait_until

from ui.records.updates import StopFlag
from ui.serving import admission
from ui.serving.admission import Rate
from ui.serving.page import (
    DROPPED,
    FULL,
    IDLE_PAGES_OF_AN_ADDRESS,
    NEW_PAGES_OF_AN_ADDRESS,
    OPEN_PAGES_OF_AN_ADDRESS,
    PageStates,
)
from ui.serving.request_body import RequestRefusedError


@pytest.fixture(scope="module")
def blocks():
    with gr.Blocks() as page:
        gr.State(list)
        gr.Textbox("words")
    return page


@pytest.fixture
def store(blocks):
    return store_for(blocks, 400)


def store_for(blocks, places):
    states = PageStates()
    blocks.state_session_capacity = places
    states.set_blocks(blocks)
    return states


def admit(store, address, count, first=0):
    for number in range(first, first + count):
        store.admit(f"{address}-{number}", address)


def refused(store, page, address):
    with pytest.raises(RequestRefusedError) as found:
        store.admit(page, address)
    return found.value


def test_an_address_makes_room_with_its_own_oldest_page(store):
    admit(store, "theirs", 3)
    admit(store, "mine", IDLE_PAGES_OF_AN_ADDRESS)
    store.admit("mine-0", "mine")  # known
    store["mine-0"]  # and used, so that it is not the oldest
    admit(store, "mine", 2, first=IDLE_PAGES_OF_AN_ADDRESS)
    assert [name for name in ("mine-0", "mine-1", "mine-2", "mine-3") if name in store] == [
        "mine-0",
        "mine-3",
    ]
    assert all(f"theirs-{number}" in store for number in range(3))
    assert len(store.session_data) == IDLE_PAGES_OF_AN_ADDRESS + 3


def test_a_full_store_drops_no_open_page_and_refuses_a_newcomer(blocks):
    store = store_for(blocks, 6)
    with ExitStack() as browsers:
        for number in range(5):
            browsers.enter_context(store.open(f"a{number}"))
            store.admit(f"a{number}", f"address {number}")
        admit(store, "closed", 1)
        admit(store, "new", 1)
        assert "closed-0" not in store  # there was none of its own
        browsers.enter_context(store.open("new-0"))
        answer = refused(store, "more", "elsewhere")
        assert (answer.status, answer.words) == (503, FULL)
        assert all(f"a{number}" in store for number in range(5))
    admit(store, "elsewhere", 1)  # they have closed
    assert "a0" not in store


def test_an_address_has_many_open_pages_and_no_more(store):
    with ExitStack() as browsers:
        for number in range(OPEN_PAGES_OF_AN_ADDRESS):
            browsers.enter_context(store.open(f"p{number}"))
            store.admit(f"p{number}", "class")
        assert len(store.session_data) == OPEN_PAGES_OF_AN_ADDRESS
        assert "120 pages are open from your address" in refused(store, "more", "class").words
        store.admit("elsewhere", "other")
        assert len(store.session_data) == OPEN_PAGES_OF_AN_ADDRESS + 1


def test_an_address_opens_so_many_pages_within_a_minute(store, monkeypatch):
    admit(store, "mine", NEW_PAGES_OF_AN_ADDRESS)
    answer = refused(store, "more", "mine")
    assert (answer.status, answer.words.endswith("try again in a minute.")) == (429, True)
    store.admit("elsewhere", "other")
    monkeypatch.setattr(admission, "MINUTE", 0.0)  # it has passed
    store.admit("more", "mine")


def test_a_rate_forgets_addresses_that_are_gone(monkeypatch):
    rate = Rate(2)
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert rate.take("b")
    monkeypatch.setattr(admission, "MINUTE", 0.0)
    assert rate.take("c")
    assert list(rate._times) == ["c"]


def test_a_dropped_page_is_told_and_leaves_nothing(store):
    admit(store, "mine", IDLE_PAGES_OF_AN_ADDRESS + 1)
    assert "mine-0" not in store
    store["mine-0"]  # an event of its that ends
    assert "mine-0" not in store
    answer = refused(store, "mine-0", "mine")
    assert (answer.status, answer.words) == (410, DROPPED)


def test_a_page_comes_back_and_keeps_its_state(store):
    store.admit("page", "mine")
    store["page"].is_closed = True  # as gradio notes at the end of a heartbeat
    with store.open("page"), store.open("page"):
        assert not store["page"].is_closed
    assert not store.is_open("page")


# ---- through the server ----------------------------------------------------------------------------------


@contextmanager
def beat(site, page):
    """A browser's heartbeat, from its first word on."""
    with site.client.stream("GET", f"{site.url}/gradio_api/heartbeat/{page}") as answer:
        words = answer.iter_text()  # it closes the connection where it is dropped
        assert next(words).startswith("data: ALIVE")
        yield


def test_a_heartbeat_of_an_unknown_page_keeps_nothing(site):
    known = set(site.page.states.session_data)
    for number in range(5):
        with beat(site, f"nobody{number}"):
            assert site.page.states.is_open(f"nobody{number}")
    wait_until(lambda: not site.page.states._heartbeats)
    assert set(site.page.states.session_data) == known


def test_the_runs_of_a_page_end_with_its_last_heartbeat(site):
    flag = StopFlag()
    site.session.channel.belongs(flag, "leaving")
    with beat(site, "leaving"):
        with beat(site, "leaving"):
            assert site.page.states._heartbeats["leaving"] == 2
        wait_until(lambda: site.page.states._heartbeats["leaving"] == 1)
        assert not flag.stopped
    wait_until(lambda: flag.stopped)


def test_pages_of_one_address_push_no_other_out(site, monkeypatch):
    """The server's store is the one that refuses, with words for the page and a time for programs."""
    monkeypatch.setattr(site.page.states, "_new", Rate(IDLE_PAGES_OF_AN_ADDRESS + 5))
    number = site.event_at_once()

    def ask(page, address):
        body = {"fn_index": number, "session_hash": page, "data": site.values(number)}
        headers = {"x-forwarded-for": address}
        return site.client.post(f"{site.url}/gradio_api/run/predict", json=body, headers=headers)

    with beat(site, "victim"):
        assert ask("victim", "9.9.9.9").status_code == 200
        state = site.page.states["victim"]
        answers = [ask(f"flood{i}", "5.5.5.5") for i in range(IDLE_PAGES_OF_AN_ADDRESS + 7)]
        assert [answer.status_code for answer in answers[-3:]] == [200, 429, 429]
        assert answers[-1].headers["retry-after"].isdecimal()
        assert "within a minute" in answers[-1].json()["detail"]
        kept = [page for page in site.page.states.session_data if page.startswith("flood")]
        assert len(kept) == IDLE_PAGES_OF_AN_ADDRESS
        assert ask("victim", "9.9.9.9").status_code == 200
        assert site.page.states["victim"] is state


def test_a_new_page_copies_no_configuration(site):
    site.page.states.admit("light", "1.2.3.4")
    assert site.page.states["light"].config_values == {}
    assert set(site.page.states["light"].blocks_config.blocks) == set(site.page.default_config.blocks)
