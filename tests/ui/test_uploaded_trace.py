"""Traces that a visitor opens, and what a browser gets of its page's run by the key it was sent."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from page_runs import SETTINGS, problem_of, run_decode
from served import file_at
from trace_version1 import SHIPPED, recording_of_version1
from view_trace import make_trace

from medusa_core.errors import MedusaError
from medusa_core.trace.replay.page import EMPTY_SLOT
from ui.records.outside import MOST_STEP_NODES, MOST_TRACE_BYTES, uploaded_trace
from ui.records.settings import LONGEST_RUN, MOST_TOKENS
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.serving.kept import GONE_STEPS
from ui.serving.policy import Exposure, policy_of


def test_both_versions_are_read():
    old = json.dumps(recording_of_version1())
    assert json.loads(old)["schema_version"] == 1
    assert uploaded_trace(old)["schema_version"] == 2
    new = json.dumps(make_trace(3))
    assert len(uploaded_trace(new)["steps"]) == 3


def wide(nodes: int) -> str:
    """A trace whose only step has this many nodes below the root."""
    trace = make_trace(1)
    step = trace["steps"][0]
    node = {**step["nodes"][1], "passes": False, "accepted": False, "depth": 1, "parent": 0}
    step["nodes"] = [step["nodes"][0], *({**node, "id": i + 1} for i in range(nodes))]
    step["path"], step["emitted"] = [0], [step["nodes"][0]["token_id"]]
    trace["output"] |= {"token_ids": step["emitted"], "new_tokens": 1}
    return json.dumps(trace)


def empty() -> str:
    """A run that was stopped before its first step."""
    trace = make_trace(1)
    nothing = {"text": "", "token_ids": [], "new_tokens": 0, "steps": 0, "finish_reason": "cancelled"}
    return json.dumps(trace | {"steps": [], "output": trace["output"] | nothing})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is not a trace"),
        (json.dumps(make_trace(2))[:-9], "is not a trace \\("),
        (empty(), "without steps"),
        (json.dumps(recording_of_version1() | {"config": "x"}), "not a trace of version 1"),
        ("\ud800", "the file is not a trace"),
        (json.dumps(make_trace(2) | {"temperatures": ["\ud800"]}), "half a character"),
        ("[" * 200_000, "the file is not a trace"),
        (" " * (MOST_TRACE_BYTES + 1), "6.0 MB, a trace may have 6"),
        (wide(MOST_STEP_NODES), "has 1025 nodes, the page draws 1024"),
    ],
)
def test_a_file_that_is_no_trace_for_the_page_is_refused_in_one_line(text, words):
    with pytest.raises(MedusaError, match=words) as refused:
        uploaded_trace(text)
    assert "\n" not in str(refused.value)


def test_a_step_as_wide_as_the_limit_is_read():
    assert len(uploaded_trace(wide(MOST_STEP_NODES - 1))["steps"][0]["nodes"]) == MOST_STEP_NODES


def test_a_public_page_shows_it_to_the_one_who_sent_it(site):
    number = site.event("open_trace")
    seen = site.outcome("shower", number, [json.dumps(make_trace(2)), False])
    message = seen[-1]["output"]["data"][0]
    assert "uploaded trace, 2 steps" in json.dumps(message)
    refused = site.outcome("shower", number, ["{}", False])
    assert '\\"kind\\": \\"refused\\"' in json.dumps(refused[-1]["output"]["data"][0])


def test_a_file_of_the_server_is_no_trace(site):
    """The event takes a text: a record of a file is not read."""
    answer = site.join("reader", site.event("open_trace"), [file_at(str(SHIPPED)), False])
    assert answer.status_code == 400


def test_the_replay_file_without_a_run_is_sent_as_text_and_takes_nothing(site):
    answer = httpx.get(f"{site.url}/medusa/replay")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.count(EMPTY_SLOT) == 1
    assert httpx.post(f"{site.url}/medusa/replay", content=b"x").status_code == 405


# --- What a browser gets of its page's run: a window's steps and the trace as a file, by the key it was sent.


private = pytest.mark.parametrize("site", ["private"], indirect=True)
KEY = re.compile(r'\{"kind": "numbered", "run": "([^"]+)"')


@pytest.fixture(scope="module")
def told(site):
    """A run as its page was sent it: key, and the messages in it."""
    run = site.event("work", "Textbox")
    site.idle()
    messages = site.outcome("first", run, site.values(run, Prompt="abc"))
    texts = [text for text in texts_in(messages) if text.startswith('{"kind": "numbered"')]
    keys = {KEY.match(text)[1] for text in texts}
    assert len(keys) == 1
    return keys.pop(), [each for text in texts for each in flat(json.loads(text)["message"])]


def texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from texts_in(part)
    elif isinstance(value, dict):
        yield from texts_in(list(value.values()))


def flat(message):
    return message["messages"] if message["kind"] == "several" else [message]


def ask(site, path, **said):
    return site.client.post(f"{site.url}/{path}", json=said)


@private
def test_a_window_holds_the_steps_that_were_sent_and_the_file_all_of_the_run(site, told):
    key, messages = told
    steps = [step for message in messages if message["kind"] == "steps" for step in message["steps"]]
    answer = ask(site, "medusa/steps", key=key, window=0)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "deflate"
    assert answer.json() == steps != []
    whole = ask(site, "medusa/trace", key=key).json()
    assert whole["steps"] == steps
    assert whole["output"] == next(message["output"] for message in messages if message["kind"] == "end")


@private
def test_a_foreign_key_and_a_run_before_are_refused_in_words(site, told):
    key, _ = told
    for wrong in ("x" * 22, key[:-1] + ("a" if key[-1] != "a" else "b")):
        for path in ("medusa/steps", "medusa/trace"):
            answer = ask(site, path, key=wrong, window=0)
            assert answer.status_code == 410
            assert answer.json() == {"words": GONE_STEPS}
    assert ask(site, "medusa/steps", key=key, window=7).status_code == 410
    assert ask(site, "medusa/steps", key="short", window=0).status_code == 400
    assert ask(site, "medusa/steps", window=0).status_code == 400
    assert site.client.get(f"{site.url}/medusa/steps").status_code == 405
    run = site.event("work", "Textbox")
    site.idle()
    site.outcome("first", run, site.values(run, Prompt="abc"))
    assert ask(site, "medusa/steps", key=key, window=0).json() == {"words": GONE_STEPS}


def test_a_page_that_others_reach_makes_shorter_runs(load):
    public, own = policy_of({}, Exposure.of({}, share=True)), policy_of({})
    assert (public.most_tokens, own.most_tokens) == (MOST_TOKENS, LONGEST_RUN) == (512, 20_000)
    for policy, tokens in ((public, MOST_TOKENS + 1), (own, LONGEST_RUN + 1)):
        asked = SETTINGS | {"max_new_tokens": tokens}
        updates = run_decode(Session(load, policy=policy), "abc", asked, StopFlag())
        assert problem_of(list(updates)).startswith(f"{tokens} new tokens asked for")
