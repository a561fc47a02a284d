"""The named endpoints, called by gradio's own client through the guard: answers, refusals, and limits."""

from __future__ import annotations

import json

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from served import engine_taken, file_at, terminal, wait_until

from medusa_core.trace.format import parse_trace
from ui.records.outside import outside_defaults

SHORT = {"max_new_tokens": 8, "tree": "default"}


@pytest.fixture(scope="module")
def client(site):
    """A program that talks to the page."""
    return Client(site.url, verbose=False)


@pytest.fixture(scope="module")
def call(client):
    return lambda name, prompt="abca", **settings: client.predict(
        prompt, **(SHORT | settings), api_name=f"/{name}"
    )


def test_the_api_page_has_these_endpoints_and_no_other(client):
    found = client.view_api(return_format="dict")
    assert set(found["named_endpoints"]) == {"/decode", "/trace", "/compare"}
    assert found["unnamed_endpoints"] == {}
    names = [entry["parameter_name"] for entry in found["named_endpoints"]["/decode"]["parameters"]]
    assert names == ["prompt", *outside_defaults()]
    defaults = {
        entry["parameter_name"]: entry["parameter_default"]
        for entry in found["named_endpoints"]["/decode"]["parameters"][1:]
    }
    assert defaults == outside_defaults()


def test_decode_and_trace_tell_of_the_same_run(call):
    short = call("decode")
    whole = parse_trace(json.dumps(call("trace")).encode(), "the answer")
    assert short["token_ids"] == whole.output.token_ids
    assert len(short["token_ids"]) == short["new_tokens"] == 8
    assert short["text"] == whole.output.text
    assert short["steps"] == len(whole.steps)
    assert short["tokens_per_second"] > 0


def test_settings_reach_the_engine(call):
    trace = call("trace", method="ngram", temperature=0.5, acceptance="match", seed=4, max_new_tokens=5)
    assert trace["config"]["drafter"]["name"] == "ngram"
    assert (trace["config"]["temperature"], trace["config"]["seed"]) == (0.5, 4)
    assert trace["output"]["new_tokens"] <= 5


def test_two_methods_are_compared(call):
    found = call("compare", method="auto", repetitions=2)
    assert list(found["runs"]) == ["Medusa", "Plain decoding"]
    assert found["outputs"]["equal"] is True
    assert all(len(run["tokens_per_second_of_runs"]) == 2 for run in found["runs"].values())
    assert found["runs"]["Plain decoding"]["tokens_per_step"] == 1
    other = call("compare", against="ngram")
    assert list(other["runs"]) == ["Medusa", "N-grams of the text", "Plain decoding"]  # the baseline
    assert other["runs"]["Medusa"]["token_ids"] == found["runs"]["Medusa"]["token_ids"]


REFUSED = [
    ("decode", {"prompt": ""}, "prompt is empty"),
    ("decode", {"prompt": "a" * 8001}, "8001 characters"),
    ("decode", {"prompt": ["abc"]}, "not a text"),
    ("decode", {"max_new_tokens": 513}, "the page allows 512"),
    ("trace", {"tree": "/etc/passwd"}, "no tree is called"),
    ("trace", {"method": "mtp"}, "method mtp needs weights, and the model brings none"),
    ("compare", {"against": "mtp+lookup"}, "or use --method medusa"),
    ("compare", {"repetitions": 4}, "choose 1 to 3"),
    ("compare", {"against": "medusa"}, "Both lanes are the same run"),
    ("compare", {"against": "/etc"}, "against: method is '/etc'"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_what_the_page_would_refuse_is_refused_in_one_line(call, name, settings, words):
    with terminal() as said, pytest.raises((AppError, ValueError)) as refused:
        call(name, **settings)
    assert words in str(refused.value)
    assert "Traceback" not in said.getvalue()


def test_a_file_of_the_server_is_no_prompt(site):
    number = site.event("decode", "Api")
    values = [block.value for block in site.page.fns[number].inputs]
    answer = site.join("reader", number, [file_at("/etc/passwd"), *values[1:]])
    assert answer.status_code == 400
    assert "not uploaded" in answer.text


def test_a_setting_without_a_value_is_refused_by_its_name(site):
    number = site.event("decode", "Api")
    inputs = site.page.fns[number].inputs
    values = ["abc", *(None if block.label == "temperature" else block.value for block in inputs[1:])]
    answer = site.join("reader", number, values)
    assert answer.status_code == 400
    assert "“temperature” needs a value" in answer.text


def test_a_program_waits_for_its_turn_as_a_page_does(site, client):
    with engine_taken(site.session):
        job = client.submit("abca", **SHORT, api_name="/decode")
        assert not job.done()
    assert job.result(timeout=60)["new_tokens"] == 8


def test_a_program_may_have_no_more_runs_than_a_page(site, client):
    with engine_taken(site.session):
        jobs = [client.submit("abca", **SHORT, api_name="/decode") for _ in range(3)]
        wait_until(lambda: sum(job.done() for job in jobs) == 1)
        refused = next(job for job in jobs if job.done())
        assert "429 Too Many Requests" in str(refused.exception())
    assert [job.result(timeout=60)["new_tokens"] for job in jobs if job is not refused] == [8, 8]


@pytest.mark.parametrize("site", ["private"], indirect=True)
def test_a_private_page_answers_too(client):
    assert client.predict("abca", max_new_tokens=4, api_name="/decode")["new_tokens"] == 4
