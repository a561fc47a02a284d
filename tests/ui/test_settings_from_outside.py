"""What links, programs, recordings and controls may set, with each method's defaults; else it is refused."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from page_runs import SETTINGS, run_decode, trace_of
from shipped_runs import recordings
from trace_factory import make_trace

from medusa_core.drafters import drafter_names, drafter_settings, title_of
from medusa_core.drafters._options import option_defaults
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from ui.records.lanes import SecondLane
from ui.records.outside import MOST_LINK_CHARACTERS, Link, outside_defaults, read_link, settings_from_outside
from ui.records.settings import MOST_WINDOW, RunSettings, make_config, menu_entries, settings_of
from ui.records.updates import StopFlag
from ui.runs.compare import CompareRequest
from ui.runs.methods import MethodsRequest, MethodsUpdate
from ui.runs.verdict import MAY, MUST, expectation

WRONG = [
    ({"tree": "/etc/passwd"}, "no tree is called"),
    ({"tree": "yours"}, "no tree is called"),
    ({"tree": [[0]]}, "not a text"),
    ({"model": "someone/else"}, "no setting is called 'model'"),
    ({"options": {"tree": "x"}}, "no setting is called 'options': check its spelling"),
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
    ({"method": "eagle3", "draft_nodes": "7"}, 'draft_nodes is "7", not a whole number'),
    ({"ignore_eos": 1}, "ignore_eos is 1, not true or false"),
    ({"penalty": 0.5}, "penalty"),
    ({"penalty_window": 1.5}, "penalty_window"),
    ({"min_p": "0.1"}, "min_p"),
    ({"min_p": 2}, "min_p"),
]


def test_what_the_controls_would_not_let_pass_is_refused(subtests):
    for values, words in WRONG:
        refused = pytest.raises(MedusaError, match=words.replace("'", "."))
        with subtests.test(values=values, words=words), refused:
            settings_from_outside(values)


PENALTY = {"penalty": 1.4, "penalty_window": 9.0}  # a slider hands a whole number over as a float


def test_what_is_not_given_has_the_engines_default():
    given = {"temperature": 1, "max_new_tokens": 7.0, "min_p": 0.5, "ignore_eos": True, **PENALTY}
    config = make_config(settings_from_outside(given))
    assert (config.temperature, config.max_new_tokens, config.method) == (1.0, 7, "medusa")
    assert (config.penalty, config.penalty_window, config.min_p, config.ignore_eos) == (1.4, 9, 0.5, True)


FORGED = [
    "", "null", "[]", '"text"', "{", '{"temperature": NaN}', '{"seed": 1e999}', "[" * 11_000,
    '{"prompt": ""}', json.dumps({"prompt": "a\x00b"}), '{"prompt": "\\ud800"}',
    json.dumps({"prompt": "a" * 8001}), " " * (MOST_LINK_CHARACTERS + 1),
    json.dumps({"temperature": 10**400}), json.dumps({"seed": 10**400}),
]  # fmt: skip


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_a_link_carries_what_the_controls_held(recording):
    held = {name: value for name, value in recording.settings.items() if name != "heads"}
    link = {name: value for name, value in held.items() if name != "copies"}
    link["method"] = recording.trace["config"]["drafter"]["name"]
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in link.items()
        if value is not None
    }
    carried = dict(urllib.parse.parse_qsl(urllib.parse.urlencode(texts)))
    assert held.items() <= read(carried).settings.items()


def test_the_menu_of_methods_is_in_the_order_of_what_it_shows():
    titles = [title for title, _ in menu_entries()]
    assert (titles[0], titles[-1]) == (title_of("medusa"), title_of("none"))
    assert titles[1:-1] == sorted(titles[1:-1], key=str.casefold)
    assert len(titles) == len(drafter_names())


def test_a_link_s_pair_of_drafters_becomes_menu_and_tick():
    held = read({"method": "medusa+lookup"}).settings
    assert (held["method"], held["copies"]) == ("medusa", True)


# --- A link names a recorded run and a step, or what differs from the defaults; all else is refused.


FORGED_LINKS = [
    ({"recorded": "another"}, "lacks"),
    ({"recorded": "a", "step": "0"}, "names step 0"),
    ({"prompt": "a", "step": "x"}, "not a whole number"),
    ({"prompt": "a", "temperature": "hot"}, "not a number"),
    ({"prompt": "a", "temperature": "heiß"}, 'temperature is "heiß", not a number'),
    ({"prompt": "a", "temperature": "1_0"}, "not a number"),
    ({"prompt": "a", "seed": "1_000"}, "not a whole number"),
    ({"prompt": "a", "seed": "1.0"}, "not a whole number"),
    ({"prompt": "a", "ignore_eos": "yes"}, "not true or false"),
    ({"prompt": "a", "ignore_eos": "1"}, "not true or false"),
    ({"prompt": "a", "temperature": "9"}, "temperature is 9"),
    ({"prompt": "a", "model": "someone/else"}, "no setting is called"),
    ({"prompt": 5}, "damaged"),
    (dict(urllib.parse.parse_qsl('{"prompt":"a = b & c"}', keep_blank_values=True)), "older version"),
    ({}, "damaged"),
]


def read(parts: dict, recorded=("a",)) -> Link:
    return read_link(json.dumps(parts), recorded)


def test_a_damaged_or_forged_link_is_refused_in_one_line(subtests):
    forged = [(json.dumps(parts), words) for parts, words in FORGED_LINKS]
    for text, words in [*((text, ".") for text in FORGED), *forged]:
        with subtests.test(text=text[:40]):
            with pytest.raises(MedusaError, match=words) as refused:
                read_link(text, ("a",))
            assert "\n" not in str(refused.value)


def test_a_recorded_run_is_named_with_its_step():
    name = recordings()[0].name
    assert read({"recorded": name, "step": "4"}, [name]) == Link(recorded=name, step=3)


def test_what_a_link_leaves_out_has_the_default_of_its_method():
    given = {"method": "eagle3", "temperature": "0.7", "ignore_eos": "true", "step": "2"}
    link = read(given | {"prompt": "a fox", "penalty": "1.4", "penalty_window": "9"})
    assert link.step == 1
    expected = {"prompt": "a fox", "method": "eagle3", "temperature": 0.7, "ignore_eos": True, **PENALTY}
    assert link.settings.items() >= expected.items()
    assert link.settings["epsilon"] == outside_defaults()["epsilon"]


# --- Going on after the end of the text: from the page's control and from links to the run and its trace.


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


def test_a_program_is_told_how_many_tokens_the_page_allows():
    with pytest.raises(MedusaError, match="600 new tokens asked for, the page allows 512"):
        settings_from_outside({"max_new_tokens": 600}, most_tokens=512)


# --- The penalty and min-p of the page: from controls and recordings to the run, and in comparisons.


def test_the_controls_reach_the_run_and_its_trace(session):
    settings = SETTINGS | PENALTY | {"min_p": 0.1, "temperature": 0.7, "max_new_tokens": 12}
    config = trace_of(list(run_decode(session, "abcabc", settings, StopFlag())))["config"]
    assert (config["penalty"], config["penalty_window"], config["min_p"]) == (1.4, 9, 0.1)


def test_a_recording_brings_them_along_where_the_sliders_hold_them():
    trace = make_trace()
    assert settings_of(trace)["penalty"] == 1.0
    trace["config"] |= {"penalty": 1.4, "penalty_window": 9, "min_p": 0.2}
    found = settings_of(trace)
    assert (found["penalty"], found["penalty_window"], found["min_p"]) == (1.4, 9, 0.2)
    trace["config"] |= {"penalty_window": MOST_WINDOW + 1}
    assert settings_of(trace)["penalty_window"] == 1024


def test_two_lanes_that_differ_in_the_penalty_alone_are_compared_and_with_one_must_have_one_text(session):
    first = RunSettings.of(**SETTINGS | PENALTY | {"max_new_tokens": 12})

    def compared(second):
        last = list(session.run(CompareRequest("abcabc", first, 1, second), StopFlag()))[-1]
        assert not last.problem, last.status
        found = json.loads(last.message)
        return [lane["name"] for lane in found["lanes"]], found["verdict"]

    names, verdict = compared(SecondLane(method=None, penalty=1.0))
    assert names == ["Medusa · penalty 1.4", "Medusa · penalty 1", "Plain decoding"]
    assert verdict["expected"] == "may"
    assert "different penalties" in verdict["note"]
    _, verdict = compared(SecondLane())
    assert (verdict["equal"], verdict["expected"]) == (True, "must")


def test_a_penalty_on_no_tokens_is_none():
    first, second = make_trace(), make_trace()
    first["config"] |= {"penalty": 1.4, "penalty_window": 0}
    assert expectation(first, second)[0] == MUST
    first["config"] |= {"penalty_window": 5}
    assert expectation(first, second)[0] == MAY


def test_all_methods_are_measured_under_it_and_write_one_text(session):
    request = MethodsRequest("abcabc", 16, 1, penalty=1.4, penalty_window=9.0)
    updates = list(session.run(request, StopFlag()))
    last = next(update for update in reversed(updates) if isinstance(update, MethodsUpdate))
    assert {one["identical_outputs"] for one in last.record["methods"].values()} == {"1 of 1"}
    assert last.note == "All runs had a penalty of 1.4 on the last 9 tokens."


# --- A setting that drafters share has each method's own default, from every place that settings come from.


NODES = {"eagle3": 59, "ngram": 15}


def nodes_of(settings):
    return drafter_settings(make_config(settings)).draft_nodes


@pytest.mark.parametrize("method", NODES)
def test_a_program_and_a_link_get_the_method_s_own(method):
    assert nodes_of(settings_from_outside({"method": method})) == NODES[method]
    assert nodes_of(settings_from_outside({"method": method, "draft_nodes": 7})) == 7
    assert read_link(json.dumps({"method": method}), ()).settings["draft_nodes"] == NODES[method]
    held = read_link(json.dumps({"method": method, "draft_nodes": "7"}), ()).settings
    assert (held["draft_nodes"], held["draft_depth"]) == (7, option_defaults(method)["draft_depth"])
    anyone = read_link(json.dumps({"method": "auto", "seed": "3"}), ()).settings
    assert "method" not in anyone  # the page's menu stays as it is


@pytest.mark.parametrize("method", NODES)
def test_a_trace_that_does_not_say_has_the_method_s_own(method):
    trace = make_trace()
    trace["config"]["drafter"] = {"name": method, "settings": {}}
    assert settings_of(trace)["draft_nodes"] == NODES[method]
    trace["config"]["drafter"]["settings"] = {"draft_nodes": 9}
    assert settings_of(trace)["draft_nodes"] == 9


def test_the_second_lane_s_method_keeps_its_own_where_none_was_chosen():
    held = option_defaults("eagle3") | SETTINGS
    first = RunSettings.of(**held | {"method": "eagle3"})
    assert nodes_of(first) == 59
    assert nodes_of(SecondLane(method="ngram").settings(first)) == 15
    assert nodes_of(SecondLane(method=None).settings(first)) == 59
    chosen = RunSettings.of(**held | {"method": "eagle3", "draft_nodes": 30})
    assert nodes_of(SecondLane(method="ngram").settings(chosen)) == 30
    hidden = RunSettings.of(**held | {"method": "medusa", "draft_nodes": 30})  # of another method
    assert nodes_of(SecondLane(method="ngram").settings(hidden)) == 15
