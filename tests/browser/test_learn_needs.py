"""Every card of the tour on every recording, and with which run and step on a run that lacks something."""

from __future__ import annotations

import copy
import json
import re

import pytest
import view_trace
from tour_page import FIRST, RUNS, TAKE

from ui.records.figures import stored_page
from ui.tabs.learn import lesson_records, lesson_texts

pytestmark = pytest.mark.browser

CARDS = {card["id"]: card for card in lesson_texts()["en"]["cards"]}
# Every card on the run on screen: its texts, its facts, and whether another run had to stand in.
WALK = """() => {
  const { root, state } = document.querySelector('.learn-host').learn;
  return Object.fromEntries([...root.querySelectorAll('.learn-dots button')].map((_, i) => {
    root.querySelectorAll('.learn-dots button')[i].click();
    const choices = [...root.querySelectorAll('.learn-choice > span')].map((choice) => choice.textContent);
    root.querySelector('.learn-choice').click();
    const right = [...root.querySelectorAll('.learn-choice')].map((one) => one.matches('.is-right'));
    const lacking = root.querySelector('.learn-lacking')?.textContent ?? '';
    const texts = [...root.querySelectorAll('.learn-words, .learn-picture')].map((part) => part.textContent);
    const { run, facts } = state.shown;
    const own = run === state.run;
    return [root.dataset.card, { lacking, choices, right, text: texts.join(), facts, own }];
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
        assert 2 <= len(set(card["choices"])) == len(card["choices"]) <= 4, name
        assert card["right"].count(True) == 1, name
        assert not re.search(r"undefined|NaN|\{\w+\}|\[\[", card["text"]), name
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
def test_a_recording_carries_every_card_with_its_numbers_and_its_cousin_is_one(page, name):
    trace = RUNS[name]
    walked = walk(page, trace)
    # Where nothing is drawn, there is no draw to show.
    assert stood_in(walked) == ({"exact"} if trace["config"]["temperature"] == 0 else set())
    assert lesson_records(stored_page())["against"] in walked["learning"]["text"]
    answers = {card: found["choices"][found["right"].index(True)] for card, found in walked.items()}
    index = walked["path"]["facts"]["index"]
    step, following = trace["steps"][index : index + 2]
    tokens = sum(len(each["emitted"]) for each in trace["steps"])
    assert answers["passes"] == str(len(trace["steps"]))
    assert f"{tokens / len(trace['steps']):.2f} tokens a step" in walked["passes"]["text"]
    assert answers["heads"] == "t + 4"
    assert int(answers["path"]) == step["cache_length"] + len(step["path"]) == following["cache_length"]
    over, under, speed = re.search(r"(\S+) ÷ (\S+) = ([\d.]+)\.", walked["speed"]["text"]).groups()
    assert abs(float(over) / float(under) - float(speed)) < 0.006
    facts = walked["mask"]["facts"]
    nodes = trace["steps"][facts["index"]]["nodes"]
    told = int(re.search(r"\(node (\d+)\)", walked["mask"]["text"])[1])
    assert answers["mask"] == str(nodes[told]["depth"] + 1)
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


def test_text_of_a_run_stays_text_and_runs_that_cannot_carry_the_tour_are_named(page):
    trace = view_trace.make_trace()
    for step in trace["steps"]:
        for node in step["nodes"]:
            node["text"] = view_trace.HOSTILE[node["id"] % len(view_trace.HOSTILE)]
    assert page.evaluate(TAKE, trace) == ""
    assert any(view_trace.IMAGE in card["text"] for card in page.evaluate(WALK).values())
    assert page.locator(".learn script, .learn img").count() == 0
    assert page.evaluate(TAKE, {**trace, "output": None}) == "unfit_short"


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
