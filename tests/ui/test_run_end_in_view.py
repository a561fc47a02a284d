"""A run that fails after it began ends in the view, with its sentence, and takes the old charts away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import sleep

import page_runs
from page_runs import run_decode

from medusa_core.config import LoadConfig
from ui.records.settings import RunSettings
from ui.records.updates import StopFlag, Update
from ui.runs.decode import DecodeRequest
from ui.runs.session import Session
from ui.serving.policy import Policy
from ui.tabs.shown_runs import ChartPanel

SETTINGS = page_runs.SETTINGS | {"max_new_tokens": 8}


def kinds(updates: list[Update]) -> list[str]:
    return [json.loads(update.message)["kind"] for update in updates if update.message]


def test_a_prompt_beyond_the_context_ends_the_view(session):
    updates = list(run_decode(session, "a" * 200, SETTINGS, StopFlag()))
    assert kinds(updates) == ["begin", "broken"]
    sentence = json.loads(updates[-1].message)["words"]
    assert sentence == updates[-1].status
    assert updates[-1].problem
    assert sentence == (
        "The prompt has 200 tokens, the context holds 96: shorten the prompt "
        "or have the model loaded with a longer --context"
    )


def test_a_run_that_comes_to_its_end_is_left_alone(session):
    updates = list(run_decode(session, "abcd", SETTINGS, StopFlag()))
    assert kinds(updates)[0] == "begin"
    assert kinds(updates)[-1] == "end"


def test_a_run_that_never_began_says_nothing_to_the_view(session):
    updates = list(run_decode(session, "  ", SETTINGS, StopFlag()))
    assert kinds(updates) == []
    assert updates[-1].problem


@dataclass(frozen=True)
class Endless(DecodeRequest):
    """A run that begins in the view and hears no flag."""

    def run(self, engines, flag):
        yield Update('{"kind": "begin"}', "Reading the prompt…")
        while True:
            sleep(0.005)
            yield Update(status="more")


def test_a_run_that_was_closed_by_its_time_limit_ends_the_view(engine_folder, monkeypatch):
    monkeypatch.setattr("ui.serving.runner.GRACE_SECONDS", 0.02)
    session = Session(LoadConfig(str(engine_folder)), policy=Policy(run_seconds=0.05))
    *_, last = session.run(Endless("abc", RunSettings.of(**SETTINGS)), StopFlag())
    assert json.loads(last.message)["words"].startswith("Ended after 0.05 s")
    assert last.trace == {"steps": []}


def test_charts_of_a_failed_run_are_empty_and_say_so():
    for figure in ChartPanel((None,) * 4, None).updates({"steps": []}, dark=False):
        assert not figure.data
        assert figure.layout.annotations[0].text == "no finished run to draw"
