"""A setting that drafters share has each method's own default, from every place that settings come from."""

from __future__ import annotations

import json

import pytest
from page_runs import SETTINGS
from view_trace import make_trace

from medusa_core.drafters import drafter_settings
from medusa_core.drafters._options import option_defaults
from medusa_core.errors import MedusaError
from ui.records.lanes import SecondLane
from ui.records.outside import read_link, settings_from_outside
from ui.records.settings import RunSettings, make_config, settings_of

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


def test_a_value_of_another_kind_is_refused():
    with pytest.raises(MedusaError, match='draft_nodes is "7", not a whole number'):
        settings_from_outside({"method": "eagle3", "draft_nodes": "7"})


@pytest.mark.parametrize("method", NODES)
def test_a_trace_that_does_not_say_has_the_method_s_own(method):
    trace = make_trace(2)
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
