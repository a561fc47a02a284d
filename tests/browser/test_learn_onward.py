"""The cards behind Medusa: how other drafters draft, exact sampling, and the reader's own model and card."""

from __future__ import annotations

import json

import pytest
from shipped_runs import recordings

from ui.records.figures import stored_page
from ui.records.messages import message_trace
from ui.tabs.learn import lesson_runs, lesson_texts
from ui.tabs.learn_computed import answered

pytestmark = pytest.mark.browser

CARDS = [card["id"] for card in lesson_texts()["en"]["cards"]]
DRAFTERS = {card["id"]: card["run"] for card in lesson_texts()["en"]["cards"] if "run" in card}
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
        tour.locator(".learn-dots button").nth(CARDS.index(name)).click()
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
    page = open_card(CARDS[-2])
    following = page.locator(".learn-nav .learn-primary")
    assert following.is_enabled()
    following.click()
    page.wait_for_selector(f".learn[data-card={CARDS[-1]}]")
    assert following.inner_text() == "On to Watch, with your own prompt"
