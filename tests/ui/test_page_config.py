"""What gradio sends a browser about the page's components: plain data, and a caveat beside every speed."""

from __future__ import annotations

import pytest

from medusa_core import acceptance
from medusa_core.acceptance import RuleInfo, rule_names
from medusa_core.acceptance.match import MatchRule
from ui.records.figures import SMALL_MODEL


@pytest.fixture(scope="module")
def config(shipped_page):
    return shipped_page.get_config_file()


def test_no_script_names_an_argument_of_its_component(config):
    """An HTML component makes an event of each quoted word of its script that is asked of it, ``self`` too.

    gradio asks for every argument of the constructor. The event would hold the component, which gradio then
    tries to copy for every page that opens.
    """
    wrong = [
        (component["type"], name)
        for component in config["components"]
        for name, value in component["props"].items()
        if component["type"] == "html" and callable(value)
    ]  # fmt: skip
    assert wrong == []


def test_the_menu_of_rules_says_what_each_does(config):
    """The setting's help tells of those that it names, a rule's own of any other."""
    shown = [one["props"] for one in config["components"] if one["type"] == "radio"]
    menus = [one for one in shown if one.get("label") == "Acceptance rule"]
    assert menus
    for menu in menus:
        assert [name for _, name in menu["choices"]] == list(rule_names())
        assert all(f"{name}: " in menu["info"] for name in rule_names())


def test_a_rule_that_the_setting_does_not_name_is_told_of_by_its_own_help(monkeypatch):
    new = RuleInfo("keep what is new", MatchRule)
    monkeypatch.setattr(acceptance, "rule_names", lambda: ("match", "newest"))
    monkeypatch.setattr(acceptance, "rule_info", lambda name: new)
    assert acceptance.rules_in_words()[1:] == ["newest: keep what is new"]


@pytest.mark.parametrize(
    "element",
    ["race-headline", "methods-words", "speed-where", "live-recorded", "trees-source", "train-recorded"],
)  # fmt: skip
def test_every_tab_with_speeds_says_how_far_those_of_a_small_model_carry(config, element):
    without_quotes = str(SMALL_MODEL).rpartition("’")[2]  # JSON escapes the quote
    assert without_quotes in str(tab_with(config, element))


def tab_with(config, element):
    """The properties of all components of the innermost tab that has the element."""
    components = {one["id"]: one for one in config["components"]}

    def within(node):
        return [components[node["id"]], *(one for child in node.get("children", ()) for one in within(child))]

    def tabs(node):
        inner = [tab for child in node.get("children", ()) for tab in tabs(child)]
        return inner + ([within(node)] if components.get(node["id"], {}).get("type") == "tabitem" else [])

    found = [tab for child in config["layout"]["children"] for tab in tabs(child)]
    holding = [tab for tab in found if any(one["props"].get("elem_id") == element for one in tab)]
    return min(holding, key=len)
