"""Going on after the end of the text: from the page's control and from links to the run and its trace."""

from __future__ import annotations

import json

import pytest
from page_runs import SETTINGS, run_decode, trace_of

from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from ui.records.outside import settings_from_outside, settings_of_link
from ui.records.settings import make_config, settings_of
from ui.records.updates import StopFlag
from ui.session import Session


@pytest.fixture(scope="module")
def session(load):
    return Session(load)


def test_a_run_goes_on_and_says_so(session, monkeypatch):
    asked = SETTINGS | {"max_new_tokens": 12}
    whole = trace_of(list(run_decode(session, "abcabc", asked, StopFlag())))
    # The third token ends the text from here on.
    monkeypatch.setattr(Engine, "end_tokens", lambda engine: frozenset(whole["output"]["token_ids"][2:3]))
    short = trace_of(list(run_decode(session, "abcabc", asked, StopFlag())))
    assert short["output"]["finish_reason"] == "eos"
    assert "ignore_eos" not in short["config"]
    longer = trace_of(list(run_decode(session, "abcabc", asked | {"ignore_eos": True}, StopFlag())))
    assert longer["output"]["token_ids"] == whole["output"]["token_ids"]
    assert longer["config"]["ignore_eos"] is True
    assert (settings_of(short)["ignore_eos"], settings_of(longer)["ignore_eos"]) == (False, True)


def test_a_link_and_a_program_may_ask_for_it():
    assert make_config(settings_from_outside({"ignore_eos": True})).ignore_eos
    assert settings_of_link(json.dumps({"ignore_eos": True})) == {"ignore_eos": True}
    with pytest.raises(MedusaError, match="ignore_eos is 1, not true or false"):
        settings_from_outside({"ignore_eos": 1})


def test_a_program_is_told_how_many_tokens_the_page_allows():
    with pytest.raises(MedusaError, match="600 new tokens asked for, the page allows 512"):
        settings_from_outside({"max_new_tokens": 600}, most_tokens=512)
