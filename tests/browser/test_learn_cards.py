"""The tour's cards: on every recording and where a run lacks something; other drafters; the reader's own."""

from __future__ import annotations

import copy
import json
import re

import pytest
import view_trace
from shipped_runs import recordings
from tour_page import FIRST, RUNS, TAKE

from ui.records.figures import stored_page
from ui.records.messages import message_trace
from ui.tabs.learn import lesson_records, lesson_runs, lesson_texts
from ui.tabs.learn_computed import answered

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
    records, learning = lesson_records(stored_page()), walked["learning"]["text"]
    assert records["against"] in learning
    [joint] = [each["loss"] for each in records["trainings"] if each["label"].startswith("Medusa-2")]
    assert f"Medusa-2 ends at {joint:.2f}" in learning
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


# --- How other drafters draft, exact sampling, and the reader's own model and GPU.


DRAFTERS = {name: card["run"] for name, card in CARDS.items() if "run" in card}
# The phase Propose of the same step in a view by itself.
PROPOSE = """([message, step]) => {
  const host = document.body.appendChild(Object.assign(document.createElement('div'), { id: 'other' }));
  const view = mountDecodeView(host, DECODE_VIEW_STYLE);
  view.receive(message);
  view.store.goto(step);
  view.store.set({ phase: 'propose' });
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    done(['.mdv-drafting', '.mdv-phasewords'].map((part) => host.querySelector(part).textContent));
    host.remove();
  })));
}"""
SEEDED = """() => {
  let state = 7; // a linear congruential generator: the same draws in every run of this test
  Math.random = () => ((state = (state * 48271) % 2147483647) / 2147483647);
}"""
SHARES = """() => {
  const { counts } = document.querySelector('.learn-host').learn.state.shown.facts.place.tally;
  const total = counts.reduce((sum, count) => sum + count, 0);
  return counts.map((count) => count / total);
}"""


@pytest.fixture
def open_card(tour):
    """Call it with a card's id: the page at that card, not answered."""

    def go(name: str):
        tour.evaluate("document.querySelector('.learn-host').learn.takeRecording()")
        tour.locator(".learn-head .learn-link").click()
        tour.locator(".learn-dots button").nth(list(CARDS).index(name)).click()
        tour.wait_for_selector(f".learn[data-card={name}].is-asking")
        return tour

    return go


@pytest.mark.parametrize("card", DRAFTERS)
def test_a_drafter_is_drawn_from_its_own_run_as_in_the_phase_propose(open_card, card):
    page = open_card(card)
    run = next(
        one for one in lesson_runs(recordings()) if one.trace["config"]["drafter"]["name"] == DRAFTERS[card]
    )
    name, trace = run.name, run.trace
    assert f"the recorded run “{name}”" in page.locator(".learn-source").inner_text()
    step = page.evaluate("document.querySelector('.learn-host').learn.state.shown.facts.index")
    picture = page.locator(".learn-picture .mdv-drafting")
    drawn, words = page.evaluate(PROPOSE, [message_trace("other", trace), step])
    assert picture.text_content() == drawn
    assert "undefined" not in drawn + words
    assert picture.locator("[data-node]").count() > 3
    levels = picture.locator(".mdv-head").count()
    fed = picture.locator(".mdv-fed").count()
    knows_above = card != "block"  # a block drafter guesses all places at once
    assert fed == (max(0, levels - 1) if knows_above else 0), "each level but the first says what it was fed"
    # TokenSwift copies sequences that stood there before, where there are any.
    copies = card == "swift" and any(
        node["origin"]["label"].startswith("×") for node in trace["steps"][step]["nodes"]
    )
    assert (picture.locator(".mdv-copies").count() > 0) == (copies or card in ("lookup", "suffix"))
    assert picture.locator(".mdv-seenrows").count() == (card == "swift")


def test_draws_by_the_rule_come_to_the_models_own_probabilities(open_card):
    page = open_card("exact")
    page.evaluate(SEEDED)
    place = page.evaluate("document.querySelector('.learn-host').learn.state.shown.facts.place")
    page.locator("[data-draws='1']").click()
    assert "Drawn from q" in page.locator(".learn-told").inner_text()
    page.locator("[data-draws='5000']").click()
    page.locator("[data-draws='5000']").click()
    # Standard error of a share of 10,000 draws is at most 0.005.
    assert page.evaluate(SHARES) == pytest.approx(place["p"], abs=0.02)
    assert max(abs(p - q) for p, q in zip(place["p"], place["q"], strict=True)) > 0.1
    page.locator(".learn-choice").first.click()
    page.locator(".learn-wrongway input").check()
    page.locator("[data-draws='5000']").click()
    missed = [abs(share - p) for share, p in zip(page.evaluate(SHARES), place["p"], strict=True)]
    assert max(missed) > 0.02  # several standard errors


def test_the_reader_names_a_model_and_a_card_and_the_answer_is_shown(open_card):
    page = open_card("yours")
    form = page.locator(".learn-yourform")
    form.locator("[name=model]").fill("3B")
    form.locator("[name=device]").fill("RTX 4090")
    form.locator("[name=bits]").select_option("4")
    form.locator("button").click()
    asked = page.evaluate("document.querySelector('.learn-host').learn.asked()")
    assert json.loads(asked) == {"model": "3B", "device": "rtx4090", "bits": 4}
    answer = answered(asked, stored_page().stored)
    page.evaluate("(text) => document.querySelector('.learn-host').learn.expect(text)", answer)
    text = page.locator(".learn-picture").inner_text()
    assert "Computed: 3B on RTX 4090 writes about" in text
    assert len(json.loads(answer)["rows"]) == page.locator(".learn-picture tbody tr").count()
    page.evaluate(
        "(text) => document.querySelector('.learn-host').learn.expect(text)",
        answered('{"model": "huge", "device": "a100", "bits": 16}', stored_page().stored),
    )
    assert "give a size such as 3B" in page.locator(".learn-picture").inner_text()


def test_only_the_last_card_has_no_next_one(open_card):
    page = open_card(list(CARDS)[-2])
    following = page.locator(".learn-nav .learn-primary")
    assert following.is_enabled()
    following.click()
    page.wait_for_selector(f".learn[data-card={list(CARDS)[-1]}]")
    assert following.inner_text() == "On to Watch, with your own prompt"
