"""Forged events and bodies answer 4xx with a sentence, and print nothing on the owner's terminal."""

from __future__ import annotations

import json
import socket

import pytest
from gradio.server_messages import HeartbeatMessage
from served import DONE, engine_taken, terminal, words_of

pytestmark = pytest.mark.parametrize("site", ["public", "private"], indirect=True)

JSON = {"content-type": "application/json"}
DOORS = ("queue/join", "run/predict")


@pytest.fixture
def quiet(site):
    """Fails a test in which the server printed a traceback."""
    with terminal() as seen:
        yield
        site.idle()
    assert "Traceback" not in seen.getvalue()
    assert "Error" not in seen.getvalue()


def post(site, door, body):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return site.client.post(f"{site.url}/gradio_api/{door}", content=body, headers=JSON)


def event_of(site, door):
    """A body that this service would take."""
    number = site.event("work", "Textbox") if door == "queue/join" else site.event_at_once()
    return {"fn_index": number, "session_hash": "forger", "data": site.values(number)}


@pytest.mark.sample
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b'{"data":' * 50_000,
        b"9" * 100_000, b'{"fn_index": NaN}', b'{"fn_index": 1e999}', b"{}", b'{"fn_index": 3}',
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_a_body_that_is_no_event(site, quiet, door, body):
    answer = post(site, door, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"].endswith("reload the page and try again.")


def test_a_private_page_answers_under_its_own_names_and_to_no_other_site(site, quiet):
    private = not site.session.policy.public
    answer = site.client.get(f"{site.url}/config", headers={"host": "evil.example:7860"})
    assert answer.status_code == (421 if private else 200)
    if private:
        words = answer.json()["detail"]
        assert "not open under the name evil.example:7860: use 127.0.0.1 or localhost" in words
        files, origin = {"files": ("a.json", b"1")}, {"origin": "http://evil.example"}
        answer = site.client.post(f"{site.url}/gradio_api/upload", files=files, headers=origin)
        assert answer.status_code == 403


# Loops without `subtests`: a subtest would keep what the server prints from `quiet`.
SERVICES = ["gradio_api/queue/join", "gradio_api/run/predict", "gradio_api/cancel", "gradio_api/reset",
            "medusa/stop", "medusa/steps"]  # fmt: skip


@pytest.mark.parametrize("number", ["1e99999", "-1e99999", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_is_refused_everywhere(site, quiet, number):
    for service in SERVICES:
        for body in (
            f'{{"data": [{number}]}}',
            f'{{"fn_index": {number}, "session_hash": "x", "event_id": "y"}}',
        ):
            answer = site.client.post(f"{site.url}/{service}", content=body, headers=JSON)
            assert answer.status_code == 400, (service, answer.text)
            assert "is not valid JSON" in answer.json()["detail"]


WRONG_EVENTS = [
    {"fn_index": 10**6}, {"fn_index": -1}, {"fn_index": 10**30}, {"fn_index": "3"}, {"fn_index": None},
    {"fn_index": True}, {"fn_index": 3.0}, {"fn_index": [3]}, {"fn_index": {}},
    {"session_hash": None}, {"session_hash": 7}, {"session_hash": ""}, {"session_hash": "x" * 100_000},
    {"session_hash": ["x"]}, {"session_hash": "../x"},
    {"trigger_id": -1}, {"trigger_id": 10**9}, {"trigger_id": "x"}, {"trigger_id": True},
    {"trigger_id": {"a": 1}},
    {"data": None}, {"data": {}}, {"data": []}, {"data": "x"}, {"data": [None] * 500}, {"data": 10**400},
    {"event_data": 10**30}, {"event_data": [[[[10**30]]]]},
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_an_event_that_this_page_does_not_have(site, quiet, door):
    for changes in WRONG_EVENTS:
        answer = post(site, door, event_of(site, door) | changes)
        assert answer.status_code == 400, (str(changes)[:40], answer.text)
        assert answer.json()["detail"].endswith("reload the page and try again.")


def test_what_only_the_browser_does_is_no_event_of_the_server(site, quiet):
    numbers = [number for number, function in site.page.fns.items() if function.fn is None]
    assert numbers
    for number in numbers:
        for door in DOORS:
            body = {"fn_index": number, "session_hash": "forger", "data": site.values(number)}
            assert post(site, door, body).status_code == 400


def test_a_button_that_uploads_starts_nothing_without_a_file(site, quiet):
    answer = site.join("forger", site.event("_load", "UploadButton"), [None, None])
    assert answer.status_code == 400
    assert "needs a value" in answer.json()["detail"]


def test_fields_that_the_page_does_not_send_are_dropped(site, quiet):
    body = event_of(site, "queue/join") | {
        "simple_format": True, "batched": True, "oauth_token": "x", "event_id": "y", "more": [1],
        "trigger_id": None, "event_data": {"index": 1},
    }  # fmt: skip
    body["data"] = site.values(body["fn_index"], Prompt="abc", **{"New tokens at most": 4})
    assert post(site, "queue/join", body).status_code == 200
    with site.listen("forger") as messages:
        assert DONE in words_of(list(messages))


def test_listening_to_a_page_that_asked_for_nothing_ends_with_a_message(site, quiet):
    answer = site.client.get(f"{site.url}/gradio_api/queue/data", params={"session_hash": "nobody"})
    assert answer.status_code == 200
    [line] = [line for line in answer.text.splitlines() if line]
    assert json.loads(line.removeprefix("data: "))["session_not_found"] is True


def test_a_second_reader_of_ones_own_messages_ends_with_a_message(site, quiet):
    number = site.event("work", "Textbox")
    values = site.values(number, Prompt="abc", **{"New tokens at most": 4})
    with engine_taken(site.session):
        assert site.join("twice", number, values).status_code == 200
        with site.listen("twice") as one, site.listen("twice") as other:
            # Whoever reads the last message takes the queue away.
            waiting = site.page._queue.pending_messages_per_session.pop("twice")
            for _ in range(2):
                waiting.put_nowait(HeartbeatMessage())
            assert [list(one)[-1]["session_not_found"], list(other)[-1]["session_not_found"]] == [True, True]


WRONG_HEADERS = [
    {"host": "["}, {"host": "a b"}, {"host": "x:99999"}, {"host": "xn--a"}, {"host": "a" * 300},
    {"x-forwarded-host": "]["}, {"x-forwarded-host": "example.com, [::1"},
    {"x-gradio-server": "nonsense"},
    {"x-gradio-server": "http://[x/"},
]  # fmt: skip


def test_a_header_that_names_no_host(site, quiet):
    for headers in WRONG_HEADERS:
        for path in ("/", "/config", "/gradio_api/info"):
            answer = site.client.get(site.url + path, headers=headers)
            assert answer.status_code in (400, 421), (headers, answer.text)


WRONG_LENGTHS = ["x", "-1", "1" * 400, "1.5"]


def test_a_length_that_is_none(site, quiet):
    for length in WRONG_LENGTHS:
        host, _, port = site.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as wire:
            head = f"POST /gradio_api/upload HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}"
            wire.send(f"{head}\r\n\r\n".encode())
            assert wire.recv(1000).startswith(b"HTTP/1.1 4"), length


WRONG_UPLOADS = [
    ("multipart/form-data", b""),
    ("multipart/form-data; boundary=x", b""),
    ("multipart/form-data; boundary=x", b"--x"),
    ("multipart/form-data; boundary=x", b"--x--\r\n"),
    ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n--x--'),
    (
        "multipart/form-data; boundary=x",
        b'--x\r\ncontent-disposition: form-data; name="a"; filename="b"\r\n\r\ncut',
    ),
    ("multipart/form-data; boundary=x", b"--x\r\nnonsense\r\n--x--"),
    ("multipart/form-data; boundary=", b"--\r\n\r\n----"),
    ("text/plain", b"abc"),
    ("application/json", b"{}"),
]


@pytest.mark.parametrize("query", ["", "?upload_id=abc"])
def test_an_upload_that_is_none(site, quiet, query):
    for kind, body in WRONG_UPLOADS:
        answer = site.client.post(
            f"{site.url}/gradio_api/upload{query}", content=body, headers={"content-type": kind}
        )
        assert answer.status_code in (400, 415), (kind, body, answer.text)
        assert answer.json()["detail"].endswith(".")


ODD_NAMES = ["a" * 250, "../../../x.json", "a\tb.json", "ü.json", "C:\\x.json", ".", "..", "con", " ", "%00"]


def test_an_upload_with_an_odd_name_is_kept_or_refused(site, quiet):
    for name in ODD_NAMES:
        answer = site.client.post(f"{site.url}/gradio_api/upload", files={"files": (name, b"[[0], [1]]")})
        assert answer.status_code in (200, 400), (name, answer.text)


def test_a_socket_is_refused(site, quiet):
    headers = {
        "upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert 400 <= site.client.get(f"{site.url}/gradio_api/queue/join", headers=headers).status_code < 500


def test_half_a_character_or_another_page_is_refused_without_a_traceback(site, quiet):
    half = {"fn_index": "\ud800", "session_hash": "x", "event_id": "y"}
    for service in ("cancel", "reset"):
        assert (
            site.client.post(f"{site.url}/gradio_api/{service}", content=json.dumps(half)).status_code < 500
        )
    assert site.client.get(f"{site.url}/?page=z").status_code == 404
