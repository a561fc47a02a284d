"""The tour in a browser: its cards, keys, memory, glossary, lecture mode, and a run of one's own."""

from __future__ import annotations

import re

import gradio as gr
import pytest
from places import says
from tour_page import FIRST, RUNS, tour_content

from ui.components.views import LearnView
from ui.tabs.learn import lesson_texts

pytestmark = pytest.mark.browser

CARDS = lesson_texts()["en"]["cards"]
# The text of every card with its answer.
TEXTS = """() => [...document.querySelectorAll('.learn-dots button')].map((_, i) => {
  document.querySelectorAll('.learn-dots button')[i].click();
  document.querySelector('.learn-choice').click();
  return document.querySelector('.learn-words').textContent;
})"""


@pytest.fixture(scope="module")
def address(serve) -> str:
    with gr.Blocks(analytics_enabled=False) as demo:
        LearnView(tour_content(FIRST), elem_id="learn-view")
    return serve(demo)


@pytest.fixture(scope="module")
def warm_page(address, open_warm_page):
    page = open_warm_page(address, reduced_motion="reduce")
    page.wait_for_selector(".learn-choice")
    return page


@pytest.fixture
def page(warm_page):
    """At the first card of the recording, nothing answered."""
    warm_page.evaluate("document.querySelector('.learn-host').learn.takeRecording()")
    warm_page.locator(".learn-head .learn-link").click()
    warm_page.wait_for_selector(".learn[data-card=passes].is-asking")
    return warm_page


# Of the buttons to the cards: the smallest side, whether each can be hit in its middle, and their lines.
DOTS = """() => {
  document.querySelector('.learn-dots').scrollIntoView({ block: 'center' });
  const dots = [...document.querySelectorAll('.learn-dots button')];
  const boxes = dots.map((dot) => dot.getBoundingClientRect());
  const middles = boxes.map(({ x, y, width, height }) => [x + width / 2, y + height / 2]);
  return {
    side: Math.min(...boxes.flatMap(({ width, height }) => [width, height])),
    hit: dots.every((dot, i) => document.elementFromPoint(...middles[i]) === dot),
    lines: new Set(boxes.map(({ y }) => y)).size,
  };
}"""


@pytest.mark.parametrize("width", [390, 1440, 1920])
def test_the_buttons_to_the_cards_stand_in_two_lines_and_can_be_hit(page, width):
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 900})
    found = page.evaluate(DOTS)
    page.set_viewport_size(before)
    assert found["side"] >= 24
    assert found["hit"]
    assert found["lines"] == 2


def test_the_answer_is_hidden_until_one_is_chosen_and_the_view_follows_the_card(page):
    page.locator(".learn-dots button").nth(6).click()
    step = int(re.search(r"step (\d+) of", page.locator(".learn-source").inner_text())[1])
    page.wait_for_selector(f".learn .mdv[data-step='{step - 1}']")
    kept = FIRST["steps"][step - 1]["path"]
    page.wait_for_selector(f".learn .mdv-node.lit[data-node='{kept[-1]}']")
    assert page.locator(".learn-body .learn-token").count() == len(kept)
    after = page.locator(".learn-picture .learn-row").nth(1)
    assert after.is_hidden()
    page.locator(".learn-choice").first.click()
    assert after.is_visible()
    assert after.locator(".is-kept").count() == len(kept)
    page.locator(".learn-dots button").nth(7).click()
    page.locator(".learn-choice").first.click()
    page.wait_for_selector(f".learn .mdv[data-step='{step}']")  # the bonus is the root of the next step
    assert page.locator(".learn-formula math").count() == 0
    page.locator(".learn-dots button").nth(5).click()
    assert page.locator(".learn-formula math msup").count() == 1


def test_a_ticked_box_looks_ticked(page):
    page.locator(".learn-dots button").nth([card["id"] for card in CARDS].index("exact")).click()
    page.locator(".learn-choice").first.click()
    box = page.locator(".learn-wrongway input")
    colour = "(box) => getComputedStyle(box).backgroundColor"
    before = box.evaluate(colour)
    box.check()
    assert box.evaluate(colour) != before  # gradio draws a white tick


def test_keys_alone_go_through_it_and_the_browser_remembers(page, open_warm_page):
    asked = []
    page.on("request", lambda request: request.resource_type != "font" and asked.append(request.url))
    page.keyboard.press("2")
    page.wait_for_selector(".learn-choice.is-right")
    assert page.locator(".learn-answer").inner_text().startswith("Right.")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".learn[data-card=heads].is-asking")
    assert f"Card 2 of {len(CARDS)}: " in page.locator(".learn-hidden[aria-live=polite]").text_content()
    assert asked == [], "a card asked the server"
    open_warm_page.reload(page)
    page.wait_for_selector(".learn[data-card=heads]")
    assert page.locator(".learn-progress").inner_text() == f"1 of {len(CARDS)} answered"
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".learn[data-card=passes] .learn-choice.is-right")
    page.locator(".learn-head .learn-link").click()
    assert page.locator(".learn-progress").inner_text() == f"0 of {len(CARDS)} answered"


def test_a_term_opens_its_note_and_gives_the_focus_back(page):
    page.locator(".learn-dots button").nth(5).click()
    page.locator(".learn-body [data-term=entropy]").click()
    note = page.locator(".learn-note")
    assert "nat" in note.inner_text()
    assert note.locator("math").count() == 1
    page.keyboard.press("Escape")
    assert note.is_hidden()
    assert page.evaluate("document.activeElement.dataset.term") == "entropy"
    page.locator(".learn-body [data-term=entropy]").click()
    note.locator(".learn-seen").click()
    page.wait_for_selector(".learn .mdv-area-why:not(.learn-away)")


def test_another_language_keeps_card_and_answer(page, open_warm_page):
    page.keyboard.press("2")
    page.evaluate("window.medusaLanguage.choose('zh')")
    page.wait_for_selector(".learn[lang=zh][data-card=passes] .learn-choice.is-right")
    assert not any(re.search(r"\{\w+\}|undefined|NaN|\[\[", text) for text in page.evaluate(TEXTS))
    open_warm_page.reload(page)
    page.wait_for_selector(".learn[lang=zh]")
    page.evaluate("window.medusaLanguage.choose(null)")
    page.wait_for_selector(".learn[lang=en]")


def test_lecture_mode_fills_the_screen_and_escape_leaves_it(page):
    page.evaluate("document.activeElement.blur()")  # as after a click on the tab
    page.keyboard.press("l")
    page.wait_for_function("document.fullscreenElement?.className.includes('is-lecture')")
    assert page.locator(".learn-more").is_hidden()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".learn[data-card=heads]")
    page.keyboard.press("Escape")
    page.wait_for_selector(".learn:not(.is-lecture)")
    page.wait_for_function("document.fullscreenElement === null")


def point_at_last_cell_of_mask(page):
    """In large type the pointer still finds the cell it is on."""
    mask = page.locator("#decode-view .mdv-maskpic")
    mask.scroll_into_view_if_needed()
    box = mask.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] - 14)
    last = len(FIRST["steps"][1]["nodes"]) - 1
    state = "document.querySelector('#decode-view .mdv-host').decodeView.store.state.cell"
    page.wait_for_function(f"{state}?.row === {last} && {state}?.column === {last}")


def test_a_newcomer_starts_from_the_first_screen_and_goes_on_with_an_own_prompt(shipped_address, open_page):
    page = open_page(shipped_address, width=390, height=844)
    page.wait_for_selector("#decode-view .mdv-node")
    page.keyboard.press("l")
    page.wait_for_function("document.fullscreenElement?.className === 'mdv is-lecture'")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#decode-view .mdv[data-step='1']")
    point_at_last_cell_of_mask(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("#decode-view .mdv:not(.is-lecture)")
    page.click("#start-tour")
    page.wait_for_selector(".learn-choice")
    page.wait_for_function("document.activeElement.classList.contains('learn-title')")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".learn[data-card=heads]")
    ids = page.evaluate("[...document.querySelectorAll('.mdv-node')].map((node) => node.id)")
    assert len(ids) == len(set(ids)), "the views of two tabs share ids"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator(".learn-yours .learn-plain").first.click()
    name = next(iter(RUNS))
    says(page, ".learn-source", f"run “{name}” of Watch")
    prompt = "Once upon a time, a small fox lived in the forest. One day,"
    page.locator(".learn-prompt").fill(prompt)
    page.locator(".learn-yours .learn-primary").click()
    says(page, ".learn-source", "your own run")
    told = page.evaluate("document.querySelector('.learn-host').learn.state.run.trace")
    assert told["prompt"]["text"] == prompt
    assert page.evaluate("medusaSettings['decode-view'].tree") == "default"
    assert [len(step["nodes"]) for step in told["steps"]] == [16] * len(told["steps"])
    assert any(len(choice) > 1 and choice[-1] > 0 for choice in told["config"]["tree"])
    assert f"of {len(CARDS)}" in page.locator(".learn-count").inner_text()
    page.locator(".learn-choice").first.click()
    says(page, ".learn .mdv-area-counters", "time in this run")
    right = page.locator(".learn-choice.is-right span").first.inner_text()
    assert right == str(len(told["steps"]))
    page.locator(".learn-dots button").nth(5).click()
    page.locator(".learn-choice").first.click()
    page.click(".learn-try")
    page.wait_for_selector("#decode-view .mdv-area-tree", state="visible")
    shown = page.evaluate("document.querySelector('.learn-host').learn.state.shown.facts.index")
    page.wait_for_selector(f"#decode-view .mdv[data-step='{shown}']")
    asks_the_server_about_an_own_model(page)


def asks_the_server_about_an_own_model(page):
    """The last card: its form, the server's answer, and the way on to Watch."""
    page.click("#start-tour")
    page.locator(".learn-dots button").last.click()
    page.locator(".learn-yourform [name=model]").fill("3B")
    page.locator(".learn-yourform [name=device]").fill("900 GB/s, 120 TFLOP/s")
    page.locator(".learn-yourform button").click()
    says(page, ".learn-expected", "Computed: 3B on 900 GB/s, 120 TFLOP/s writes about")
    onward = page.locator(".learn-nav .learn-primary")
    assert onward.is_enabled()
    onward.click()
    page.wait_for_selector("#decode-view .mdv-area-tree", state="visible")
