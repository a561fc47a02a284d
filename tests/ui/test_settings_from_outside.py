"""What a link or a program may set: what the controls would let pass, and no files or models."""

from __future__ import annotations

import json
import urllib.parse

import pytest

from medusa_core.errors import MedusaError
from ui.components.controls import FIELDS
from ui.records.examples import recordings
from ui.records.outside import (
    MOST_LINK_CHARACTERS,
    outside_defaults,
    settings_from_outside,
    settings_of_link,
)
from ui.records.settings import make_config

WRONG = [
    ({"tree": "/etc/passwd"}, "no tree is called"),
    ({"tree": "yours"}, "no tree is called"),
    ({"tree": [[0]]}, "not a text"),
    ({"model": "someone/else"}, "no setting is called 'model'"),
    ({"options": {"tree": "x"}}, "no setting is called 'options'"),
    ({"stop": ["a"]}, "no setting is called 'stop'"),
    ({"method": "__import__"}, "method is '__import__'"),
    ({"acceptance": ""}, "acceptance is ''"),
    ({"temperature": "0.7"}, "not a number"),
    ({"temperature": 2.5}, "temperature is 2.5"),
    ({"max_new_tokens": 20_001}, "the page allows 20000"),
    ({"max_new_tokens": 1.5}, "not a whole number"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ({"seed": 10**30}, "seed is"),
    ({"budget": 65}, "choose 2 to 64"),
]


def test_what_the_controls_would_not_let_pass_is_refused(subtests):
    for values, words in WRONG:
        with subtests.test(values=values, words=words):
            with pytest.raises(MedusaError, match=words.replace("'", ".")):
                settings_from_outside(values)
            with pytest.raises(MedusaError):
                settings_of_link(json.dumps(values))


def test_what_is_not_given_has_the_engines_default():
    config = make_config(settings_from_outside({"temperature": 1, "max_new_tokens": 7.0}))
    assert (config.temperature, config.max_new_tokens, config.method) == (1.0, 7, "medusa")
    assert {name for name in outside_defaults() if name in FIELDS} <= set(FIELDS)


FORGED = [
    "", "null", "[]", '"text"', "{", '{"temperature": NaN}', '{"seed": 1e999}', "[" * 11_000,
    '{"prompt": 5}', '{"prompt": ""}', json.dumps({"prompt": "a\x00b"}), '{"prompt": "\\ud800"}',
    json.dumps({"prompt": "a" * 8001}), " " * (MOST_LINK_CHARACTERS + 1),
]  # fmt: skip


def test_a_damaged_or_forged_link_is_refused_in_one_line(subtests):
    for text in FORGED:
        with subtests.test(text=text[:20]):
            with pytest.raises(MedusaError) as refused:
                settings_of_link(text)
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_a_link_carries_what_the_controls_held(recording):
    held = {name: value for name, value in recording.settings.items() if name != "heads"}
    link = {name: value for name, value in held.items() if name != "copies"}
    link["method"] = recording.trace["config"]["drafter"]["name"]
    carried = urllib.parse.unquote(urllib.parse.quote(json.dumps(link)))
    assert settings_of_link(carried) == held


def test_a_link_s_pair_of_drafters_becomes_menu_and_tick():
    held = settings_of_link('{"method": "medusa+lookup"}')
    assert (held["method"], held["copies"]) == ("medusa", True)
