"""Which run and step each card of the tour is told with, on runs that lack something."""

from __future__ import annotations

import copy
import json
import re

import pytest
from tour_page import FIRST, RUNS, TAKE

from ui.tabs.learn import lesson_texts

pytestmark = pytest.mark.browser

CARDS = {card["id"]: card for card in lesson_texts()["en"]["cards"]}
# Every card on the run on screen: its texts, its facts, and whether another run had to stand in.
WALK = """() => {
  const { root, state } = document.querySelector('.learn-host').learn;
  return Object.fromEntries([...root.querySelectorAll('.learn-dots button')].map((_, i) => {
    root.querySelectorAll('.learn-dots button')[i].click();
    const choices = root.querySelectorAll('.learn-choice').length;
    root.querySelector('.learn-choice').click();
    const lacking = root.querySelector('.learn-lacking')?.textContent ?? '';
    const texts = [...root.querySelectorAll('.learn-words, .learn-picture')].map((part) => part.textContent);
    const { run, facts } = state.shown;
    return [root.dataset.card, { lacking, choices, text: texts.join(), facts, own: run === state.run }];
  }));
}"""


@pytest.fixture
def page(tour):
    return tour


def walk(page, trace) -> dict:
    assert page.evaluate(TAKE, trace) == ""
    walked = page.evaluate(WALK)
    assert walked.keys() == CARDS.keys()
    for name, card in walked.items():
        assert card["choices"] > 1, name
        assert not re.search(r"undefined|NaN|\{\w+\}", card["text"]), name
        assert "run" in CARDS[name] or card["own"] == (card["lacking"] == ""), name
    return walked


def stood_in(walked) -> set[str]:
    return {name for name, card in walked.items() if card["lacking"]}


def cut(trace, keep) -> dict:
    """The run with only the nodes that ``keep`` says, and the path that then passes."""
    trace = copy.deepcopy(trace)
    for step in trace["steps"]:
        places: dict[int, int] = {}
        for node in step["nodes"]:
            if node["id"] == 0 or (node["parent"] in places and keep(node)):
                places[node["id"]] = len(places)
        nodes = [node for node in step["nodes"] if node["id"] in places]
        for node in nodes:
            node["id"], node["parent"] = places[node["id"]], places.get(node["parent"])
        step["nodes"] = nodes
        path = [0]
        while (
            following := next((n for n in nodes if n["parent"] == path[-1] and n["passes"]), None)
        ) is not None:
            path.append(following["id"])
        for node in nodes:
            node["accepted"] = node["id"] in path
        step["path"], step["emitted"] = path, [nodes[i]["token_id"] for i in path]
    return trace


def is_first(node) -> bool:
    return node["origin"]["rank"] in (None, 0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_recording_carries_every_card_and_its_cousin_is_one(page, name):
    walked = walk(page, RUNS[name])
    # Where nothing is drawn, there is no draw to show.
    assert stood_in(walked) == ({"exact"} if RUNS[name]["config"]["temperature"] == 0 else set())
    facts = walked["mask"]["facts"]
    nodes = RUNS[name]["steps"][facts["index"]]["nodes"]
    seer, cousin = nodes[facts["seer_id"]], nodes[facts["cousin_id"]]
    line = [seer["id"]]
    while nodes[line[-1]]["parent"] is not None:
        line.append(nodes[line[-1]]["parent"])
    assert cousin["parent"] != seer["parent"]
    assert cousin["id"] not in line
    failed = nodes[walked["bar"]["facts"]["failed_id"]]
    assert not failed["passes"]


def test_a_chain_has_no_siblings_and_no_cousins(page):
    walked = walk(page, cut(FIRST, is_first))
    assert stood_in(walked) == {"tree", "row", "mask", "exact"}
    reason = "The tree of your own run has no two guesses for one place"
    assert walked["row"]["lacking"] == reason + "; for this card the recorded run is shown."
    assert walked["row"]["facts"]["a_id"] != walked["row"]["facts"]["b_id"]
    page.locator(".learn-dots button").nth(3).click()
    assert "the recorded run" in page.locator(".learn-source").inner_text()


def test_where_no_guess_failed_the_bar_and_the_path_are_told_with_the_recording(page):
    walked = walk(page, cut(FIRST, lambda node: is_first(node) and node["passes"]))
    assert {"bar", "path"} <= stood_in(walked)
    assert "no guess failed" in walked["bar"]["lacking"]


def test_a_single_step_has_none_before_it_and_none_behind(page):
    walked = walk(page, {**FIRST, "steps": FIRST["steps"][:1]})
    assert {"heads", "bonus"} <= stood_in(walked)
    assert walked["mask"]["own"]
    assert walked["mask"]["facts"]["step"] == 1


def test_a_run_of_another_drafter_is_told_where_the_card_is_not_about_heads(page):
    trace = copy.deepcopy(FIRST)
    trace["config"]["drafter"]["name"] = "ngram"
    for step in trace["steps"]:
        for node in step["nodes"][1:]:
            node["origin"] = {"by": "ngram", "head": None, "rank": None, "label": "", "note": ""}
    assert stood_in(walk(page, trace)) == {"passes", "heads", "tree", "bonus", "speed", "exact"}
    for step in trace["steps"]:
        step["nodes"] = step["nodes"][:1]
    assert page.evaluate(TAKE, trace) == "unfit_method"


def test_start_over_forgets_answers_and_keeps_the_run(page):
    walk(page, RUNS[list(RUNS)[1]])
    page.locator(".learn-head .learn-link").click()
    state = page.evaluate("() => { const { run, card } = document.querySelector('.learn-host').learn.state; "
                          "return [run.name.text, run.trace.prompt.text, card]; }")  # fmt: skip
    assert state == ["own", RUNS[list(RUNS)[1]]["prompt"]["text"], 0]
    assert page.locator(".learn-progress").inner_text().startswith(f"0 of {len(CARDS)}")
    shown = "trace => document.querySelector('.learn-host').learn.takeRun({ trace, name: "
    page.evaluate(shown + json.dumps({"text": "gallery", "run": "Booking <b>"}) + " })", FIRST)
    assert "the recorded run “Booking <b>” of Watch" in page.locator(".learn-source").inner_text()
