"""The view of runs whose drafter has no heads: colour, marks on nodes, legends, signs and numbers."""

from __future__ import annotations

import copy
import re

import pytest
from places import drawn
from view_trace import make_trace

from medusa_core.trace.replay.colours import drafter_palette

pytestmark = pytest.mark.browser


def trace_of(method: str, label: str = "×12"):
    """A run of this method; plain decoding has roots alone."""
    trace = copy.deepcopy(make_trace(2))
    trace["config"]["drafter"] = {"name": method, "settings": {}}
    for step in trace["steps"]:
        for node in step["nodes"][1:]:
            node["origin"] |= {"by": method, "head": None, "label": label}
            node["entropy"] = -1e-5
            node["p"] = 0.47
        if method == "none":
            step |= {"nodes": step["nodes"][:1], "path": [0], "emitted": step["emitted"][:1]}
    return trace


@pytest.mark.sample(1)
@pytest.mark.parametrize(("method", "theme"), [("ngram", ""), ("ngram", "dark"), ("medusa", "")])
def test_accepted_guesses_have_one_colour_everywhere(tell, view, method, theme):
    view.evaluate("(theme) => { document.body.className = theme; }", theme)
    page = tell(trace_of(method))
    colours = page.evaluate(
        """() => {
          const of = (part, name) => getComputedStyle(document.querySelector(part))[name];
          return [of(".mdv-strip .from-head", "borderBottomColor"),
                  of(".mdv-legend .from-head", "borderBottomColor"),
                  of(".mdv-node.is-accepted .chip", "stroke"),
                  of(".mdv-swatch.is-accepted", "borderTopColor"),
                  of(".mdv-edge.is-accepted", "stroke"), of(".mdv-badge.is-accepted", "borderTopColor")];
        }"""
    )
    accepted = bytes.fromhex(drafter_palette(method, bool(theme)).accepted[1:])
    assert set(colours) == {"rgb({}, {}, {})".format(*accepted)}


def test_nothing_on_a_node_overlaps(tell):
    trace = trace_of("ngram")
    for step in trace["steps"]:
        for node in step["nodes"]:
            node["text"] = " restaurant"
    for wide in (trace, dense(trace)):
        page = tell(wide)
        assert page.locator(".mdv-node:not(.is-root) .small").first.text_content().startswith("n ×1")
        boxes = page.evaluate(
            """() => [...document.querySelectorAll(".mdv-node")].map((node) =>
              [...node.querySelectorAll("text")].map((text) => text.getBoundingClientRect().toJSON()))"""
        )
        for texts in boxes:
            for i, a in enumerate(texts):
                for b in texts[i + 1 :]:
                    beside = a["right"] <= b["left"] + 0.5 or b["right"] <= a["left"] + 0.5
                    below = a["bottom"] <= b["top"] + 4 or b["bottom"] <= a["top"] + 4
                    assert beside or below or 0 in (a["right"] - a["left"], b["right"] - b["left"]), (a, b)


def dense(trace):
    """The same with so many guesses below the root that the rows are low."""
    trace = copy.deepcopy(trace)
    for step in trace["steps"]:
        last = step["nodes"][-1]
        for number in range(len(step["nodes"]), 30):
            extra = {"id": number, "parent": 0, "depth": 1, "passes": False, "accepted": False}
            step["nodes"].append(copy.deepcopy(last) | extra)
    return trace


def test_no_number_is_a_negative_zero(tell):
    page = tell(trace_of("ngram"))
    page.locator(".mdv-node:not(.is-root)").first.hover()
    drawn(page)
    words = page.locator(".mdv-area-why").inner_text()
    assert "0.00 nats" in words
    assert not re.search(r"-0\.0+(?![0-9])", words)


def test_plain_decoding_s_legends_know_the_root_alone(tell):
    page = tell(trace_of("none"))
    assert page.locator(".mdv-treelegend > span:visible").all_inner_texts() == ["root, from the base model"]
    text = page.locator(".mdv-area-text .mdv-legend").inner_text()
    assert "root" in text
    assert "guess" not in text
    assert "Plain decoding" in page.locator(".mdv-badges").inner_text()
    assert page.locator(".mdv-treelegend > span").count() == 1
    assert tell(trace_of("ngram")).locator(".mdv-treelegend > span").count() == 6


def test_the_mark_of_a_line_break_stands_before_it(tell):
    trace = trace_of("ngram")
    for step in trace["steps"]:
        for node in step["nodes"]:
            node["text"] = ".\n"
    page = tell(trace)
    assert page.locator(".mdv-strip .from-head").first.evaluate("(token) => token.textContent") == ".⏎n\n"


def test_heads_that_read_the_path_show_the_guesses_after_one_path(tell):
    """Of the second head only those below one node stand together: after another token it guesses others."""
    trace = copy.deepcopy(make_trace(2))
    trace["config"]["drafter"] = {"name": "hydra", "settings": {}}
    nodes = trace["steps"][0]["nodes"]
    for node in nodes[1:]:
        node["origin"] |= {"by": "hydra"}
    page = tell(trace)
    page.evaluate("() => document.querySelector('.mdv-phase[data-phase=propose]').click()")
    drawn(page)
    shown = page.evaluate(
        "() => [...document.querySelectorAll('.mdv-headspic .mdv-head')].map((head) => "
        "[...head.querySelectorAll('.mdv-guess')].map((guess) => Number(guess.dataset.node)))"
    )
    second = [node["id"] for node in nodes if node["depth"] == 2]
    assert len({nodes[i]["parent"] for i in second}) > 1
    assert {nodes[i]["parent"] for i in shown[1]} == {nodes[second[0]]["parent"]}
    words = page.inner_text(".mdv-headspic")
    assert "token 2, after “" in words
    assert "fed: the tokens guessed before it" in words
