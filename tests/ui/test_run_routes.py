"""What a browser gets of its page's run: a window's steps and the trace as a file, by the key it was sent."""

from __future__ import annotations

import json
import re

import pytest
from page_runs import SETTINGS, problem_of, run_decode
from served import launched

from medusa_core.config import LoadConfig
from ui.records.settings import LONGEST_RUN, MOST_TOKENS
from ui.records.updates import StopFlag
from ui.serving.kept_runs import GONE_STEPS
from ui.serving.policy import Policy, policy_of
from ui.session import Session

KEY = re.compile(r'\{"kind": "numbered", "run": "([^"]+)"')


@pytest.fixture(scope="module")
def site(engine_folder):
    with launched(engine_folder, Policy()) as found:
        yield found


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


def test_a_page_that_others_reach_makes_shorter_runs(engine_folder):
    public, own = policy_of({}, share=True), policy_of({})
    assert (public.most_tokens, own.most_tokens) == (MOST_TOKENS, LONGEST_RUN) == (512, 20_000)
    load = LoadConfig(str(engine_folder), dtype="float32", device="cpu")
    for policy, tokens in ((public, MOST_TOKENS + 1), (own, LONGEST_RUN + 1)):
        updates = run_decode(
            Session(load, policy=policy), "abc", SETTINGS | {"max_new_tokens": tokens}, StopFlag()
        )
        assert problem_of(list(updates)).startswith(f"{tokens} new tokens asked for")
