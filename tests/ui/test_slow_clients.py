"""Connections that trickle or stay silent end; a refused body is read, so that its sender sees the answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest
from served import PUBLIC, launched
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from ui.serving import admission, request_body
from ui.serving.admission import limit_connections
from ui.serving.request_body import BodyReader, RequestRefusedError, drain

SECONDS = 0.5  # of patience with a header, in these tests


@pytest.fixture(scope="module", params=["as installed", pytest.param("h11", marks=pytest.mark.slow)])
def site(request, engine_folder):
    """With less patience than the app's."""
    with launched(engine_folder, PUBLIC) as found:
        if request.param == "h11":  # uvicorn takes the other parser only where it is installed
            found.page.server.config.http_protocol_class = H11Protocol
        limit_connections(found.page.server, proxied=True, header_seconds=SECONDS)
        yield found


@contextlib.contextmanager
def connected(site):
    host, _, port = site.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        yield wire


def ended_after(wire, trickle=b""):
    """Seconds until the server closes; one more byte is sent every now and then."""
    begun = time.monotonic()
    wire.settimeout(0.1)
    while time.monotonic() - begun < 30:
        try:
            if trickle:
                wire.send(trickle)
            if not wire.recv(1000):
                return time.monotonic() - begun
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - begun
    raise AssertionError("the server left the connection open")


def whole(wire):
    """All that the server answers until it closes; the header and the sentence may come apart."""
    parts = []
    while part := wire.recv(2000):
        parts.append(part)
    return b"".join(parts)


def test_a_connection_that_says_nothing_ends(site):
    with connected(site) as wire:
        assert ended_after(wire) > 0.5 * SECONDS


def test_a_header_that_trickles_ends(site):
    with connected(site) as wire:
        wire.send(b"GET /config HTTP/1.1\r\nhost: x\r\na: ")
        ended_after(wire, trickle=b"a")


def test_a_second_header_that_trickles_ends(site):
    with connected(site) as wire:
        wire.send(b"GET /theme.css HTTP/1.1\r\nhost: x\r\n\r\n")
        time.sleep(0.2)
        wire.send(b"GET /theme.css HTTP/1.1\r\na: ")
        ended_after(wire, trickle=b"a")


def test_a_page_that_listens_is_not_ended(site):
    """An answer may take as long as it likes: the limit is on what is asked."""
    with connected(site) as wire:
        wire.send(b"GET /gradio_api/heartbeat/abc HTTP/1.1\r\nhost: x\r\n\r\n")
        until = time.monotonic() + 2 * SECONDS
        while time.monotonic() < until:
            wire.settimeout(max(0.05, until - time.monotonic()))
            try:
                assert wire.recv(1000), "ended"
            except TimeoutError:
                break


def test_a_body_that_trickles_ends_in_a_sentence(site, monkeypatch):
    monkeypatch.setattr(request_body, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(request_body, "DRAIN_SECONDS", 0.2)
    with connected(site) as wire:
        wire.send(
            b"POST /gradio_api/queue/join HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 100000\r\n\r\n{"
        )
        wire.settimeout(30)
        answer = whole(wire)
    assert b" 408 " in answer
    assert b"The request came too slowly: try again." in answer


def test_the_sender_of_a_large_body_sees_why_it_is_refused(site):
    """Five times the limit, sent whole before anything is read."""
    with connected(site) as wire:
        body = b"x" * 5_000_000
        head = f"POST /gradio_api/upload HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        wire.sendall(head.encode() + body)
        answer = whole(wire)
    assert b" 413 " in answer
    assert b"The request is larger than 1.00 MB: shorten the text or the file." in answer


def test_who_waits_for_a_go_ahead_is_refused_at_once(site):
    with connected(site) as wire:
        wire.send(
            b"POST /gradio_api/upload HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"content-length: 999999999\r\n\r\n"
        )
        assert b" 413 " in wire.recv(2000)


def test_one_address_holds_a_bounded_number_of_connections(engine_folder, monkeypatch):
    monkeypatch.setattr(admission, "CONNECTIONS_OF_AN_ADDRESS", 5)
    with launched(engine_folder, PUBLIC, proxied=False) as site, contextlib.ExitStack() as stack:
        mine = [stack.enter_context(connected(site)) for _ in range(8)]
        answers = [answer_of(wire, 0.1) for wire in mine[:5]] + [answer_of(wire, 30) for wire in mine[5:]]
        assert [b" 503 " in answer for answer in answers] == [False] * 5 + [True] * 3
        assert answers[-1].endswith(b"Too many connections are open: try again.")
        for wire in mine:
            wire.close()
        for _ in range(100):
            if not site.page.server.server_state.connections:
                break
            time.sleep(0.05)
        assert site.client.get(f"{site.url}/theme.css").status_code == 200


def answer_of(wire, seconds):
    """What the server says to a connection that has asked for nothing."""
    wire.settimeout(seconds)
    try:
        return wire.recv(1000)
    except TimeoutError:
        return b""


def messages(*parts, end=True):
    """A `receive` that brings these parts of a body, and then nothing for ever."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if end:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive():
        if waiting:
            return waiting.pop(0)
        return await asyncio.Event().wait()

    return receive


def test_a_body_is_read_whole_or_not_at_all(run_apart):
    reader = BodyReader(10)
    assert run_apart(reader.read(Headers(), messages(b"abc", b"def"))) == b"abcdef"
    with pytest.raises(RequestRefusedError, match="larger"):
        run_apart(reader.read(Headers(), messages(b"abcdef", b"abcdef")))
    with pytest.raises(RequestRefusedError, match="larger"):
        run_apart(reader.read(Headers({"content-length": "11"}), messages()))

    async def gone():
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        run_apart(reader.read(Headers(), gone))
    assert reader._held == 0


def test_bodies_together_take_a_bounded_memory(run_apart):
    async def many():
        reader = BodyReader(10)
        tasks = [
            asyncio.create_task(reader.read(Headers(), messages(b"abcdefghi", end=False))) for _ in range(30)
        ]
        done, waiting = await asyncio.wait(tasks, timeout=0.5)
        for task in waiting:
            task.cancel()
        return [task.exception().status for task in done], len(waiting)

    refused, waiting = run_apart(many())
    assert waiting <= request_body.BODIES_AT_ONCE * 10 // 9
    assert set(refused) == {503}


def test_what_is_dropped_of_a_refused_body_is_bounded(monkeypatch, run_apart):
    monkeypatch.setattr(request_body, "DRAIN_BYTES", 1000)
    monkeypatch.setattr(request_body, "DRAIN_SECONDS", 0.2)
    seen = []

    async def endless():
        seen.append(1)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    run_apart(drain(Headers(), endless))
    assert len(seen) == 10
    run_apart(drain(Headers(), messages(b"x", end=False)))  # ends by the clock
