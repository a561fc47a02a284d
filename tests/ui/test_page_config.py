"""What gradio sends a browser about the page's components: plain data, and a caveat beside every speed."""

from __future__ import annotations

import pytest

from medusa_core.config import LoadConfig
from ui.records.figures import SMALL_MODEL
from ui.runs.session import Session
from ui.tabs.layout import build_page


@pytest.fixture(scope="module")
def config():
    return build_page(Session(LoadConfig())).get_config_file()


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


@pytest.mark.parametrize(
    "element",
    ["race-headline", "methods-words", "speed-where", "hardware-parts", "trees-source", "train-gain",
     "experiment-text"],
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
