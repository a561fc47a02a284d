"""Under which names a page answers, and whose word on a visitor's address counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from served import PUBLIC
from starlette.datastructures import Address, Headers

from ui.launch import launch_options
from ui.serving.admission import asker, in_queue
from ui.serving.policy import Exposure
from ui.serving.request_body import RequestRefusedError
from ui.serving.routes import Names

HERE = Names(private=True)


def headers(**values):
    """Headers as the server reads them; underscores stand for hyphens."""
    return Headers({name.replace("_", "-"): value for name, value in values.items()})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:7860",
        "LOCALHOST:1",
        "127.0.0.1:7860",
        "127.0.0.2",
        "[::1]:7860",
        "x.localhost:80",
    ],
)
def test_a_private_page_answers_under_the_names_of_this_machine(host):
    HERE.check(headers(host=host))
    HERE.check(headers(host=host, origin=f"http://{host}"))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example:7860", "127.0.0.1.evil.example", "192.168.1.7", "0.0.0.0", ""],
)
def test_a_private_page_does_not_answer_under_another_name(host):
    with pytest.raises(RequestRefusedError) as refused:
        HERE.check(headers(host=host))
    assert refused.value.status in (400, 421)


def test_a_private_page_answers_under_the_host_it_was_told():
    Names(private=True, host="my-computer").check(headers(host="My-Computer:7860"))
    Names(private=True, host="[::1]").check(headers(host="[::1]:7860"))


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://evil.example:7860", "x"])
def test_another_site_cannot_send_requests_to_a_private_page(origin):
    with pytest.raises(RequestRefusedError, match="Another site"):
        HERE.check(headers(host="127.0.0.1:7860", origin=origin))


def test_a_public_page_answers_under_any_name():
    Names(private=False).check(headers(host="abc.gradio.live", origin="https://huggingface.co"))
    Names(private=False).check(headers(host="10.0.0.1:7860", x_forwarded_host="me-space.hf.space"))


@pytest.mark.parametrize(
    ("reach", "proxied"),
    [
        (Exposure(None, share=False, hosted=False), False),
        (Exposure("0.0.0.0", share=False, hosted=False), False),
        (Exposure("192.168.1.7", share=False, hosted=False), False),
        (Exposure(None, share=True, hosted=False), True),
        (Exposure("0.0.0.0", share=False, hosted=True), True),
    ],
)
def test_a_proxy_is_there_where_the_owner_set_one_up(reach, proxied):
    assert reach.proxied is proxied


def test_a_neighbour_in_the_network_cannot_invent_an_address():
    forged = headers(x_forwarded_for="8.8.8.8")
    assert asker(("192.168.1.9", 5), forged, proxied=False) == "192.168.1.9"
    assert asker(("192.168.1.9", 5), forged, proxied=True) == "8.8.8.8"
    assert asker(None, forged, proxied=False) == ""


def test_a_second_header_of_the_proxy_counts_more_than_the_first_of_the_visitor():
    both = Headers(raw=[(b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"8.8.8.8, 10.0.0.1")])
    assert asker(("10.0.0.2", 5), both, proxied=True) == "8.8.8.8"


@pytest.mark.parametrize("proxied", [False, True])
def test_the_queue_and_the_guard_count_addresses_alike(proxied):
    """A visitor of the network who names another address with each request is one visitor."""
    requests = [
        SimpleNamespace(client=Address("192.168.1.9", 5), headers=headers(x_forwarded_for=f"8.8.8.{number}"))
        for number in range(3)
    ]
    events = [
        SimpleNamespace(request=request, session_hash="x", concurrency_id="engine") for request in requests
    ]
    waiting, active = {"engine": SimpleNamespace(queue=events[:2])}, [None, events[2:]]
    queue = SimpleNamespace(event_queue_per_concurrency_id=waiting, active_jobs=active)
    asks = list(in_queue(SimpleNamespace(_queue=queue), proxied=proxied))
    assert [ask.waiting for ask in asks] == [True, True, False]
    assert len({ask.address for ask in asks}) == (3 if proxied else 1)
    reach = Exposure("0.0.0.0", share=False, hosted=proxied)
    guard = launch_options(None, PUBLIC, reach)["app_kwargs"]["middleware"][0]
    assert guard.kwargs["proxied"] is proxied
    assert guard.kwargs["names"] == Names(private=False, host="0.0.0.0")
