"""A link names a recorded run and a step, or what differs from the defaults; all else is refused."""

from __future__ import annotations

import json

import pytest

from medusa_core.errors import MedusaError
from ui.records.examples import recordings
from ui.records.link import Link, read_link
from ui.records.outside import outside_defaults

WRONG = [
    ({"recorded": "another"}, "has not"),
    ({"recorded": "a", "step": "0"}, "names step 0"),
    ({"prompt": "a", "step": "x"}, "not a whole number"),
    ({"prompt": "a", "temperature": "hot"}, "not a number"),
    ({"prompt": "a", "temperature": "9"}, "temperature is 9"),
    ({"prompt": "a", "ignore_eos": "maybe"}, "not true or false"),
    ({"prompt": "a", "model": "someone/else"}, "no setting is called"),
    ({"prompt": "a", "tree": "/etc/passwd"}, "no tree is called"),
    ({"prompt": 5}, "damaged"),
    ({}, "damaged"),
]


def read(parts: dict, recorded=("a",)) -> Link:
    return read_link(json.dumps({"link": parts}), recorded)


@pytest.mark.parametrize(("parts", "words"), WRONG)
def test_a_forged_link_is_refused_in_one_line(parts, words):
    with pytest.raises(MedusaError, match=words) as refused:
        read(parts)
    assert "\n" not in str(refused.value)


def test_a_recorded_run_is_named_with_its_step():
    name = recordings()[0].name
    assert read({"recorded": name, "step": "4"}, [name]) == Link(recorded=name, step=3)


def test_what_a_link_leaves_out_has_the_default_of_its_method():
    link = read(
        {"prompt": "a fox", "method": "eagle3", "temperature": "0.7", "ignore_eos": "true", "step": "2"}
    )
    assert link.step == 1
    expected = {"prompt": "a fox", "method": "eagle3", "temperature": 0.7, "ignore_eos": True}
    assert link.settings.items() >= expected.items()
    assert link.settings["draft_nodes"] == 59  # EAGLE-3's own, where others have 15
    assert link.settings["epsilon"] == outside_defaults()["epsilon"]


def test_a_link_of_an_earlier_page_is_read_too():
    assert read_link('{"prompt": "a fox", "seed": 3}', ()).settings == {"prompt": "a fox", "seed": 3}
