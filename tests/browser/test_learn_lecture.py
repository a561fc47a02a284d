"""What a lecture hall sees of the tour: nothing covered or cut, and type that grows with the screen."""

from __future__ import annotations

import pytest
from places import drawn
from tour_page import FIRST, TAKE

pytestmark = pytest.mark.browser

SIZES = [
    (1280, 720),
    pytest.param(1440, 757, marks=pytest.mark.slow),
    pytest.param(1920, 1080, marks=pytest.mark.slow),
    (390, 844),
]
# Lists what is covered or out of the window.
LOOK = """const look = (when, selector) => [...document.querySelectorAll(selector)].flatMap((part) => {
  const { top, left, bottom, right, width, height } = part.getBoundingClientRect();
  if (!width || getComputedStyle(part).visibility === 'hidden') return [];
  const inside = Math.min(top, left) >= -1 && bottom <= innerHeight + 1 && right <= innerWidth + 1;
  const node = part.closest('.mdv-node') ?? part; // a chip has its texts before it
  const seenAt = (share) => node.contains(document.elementFromPoint(left + width / 2, top + share * height));
  const { card } = document.querySelector('.learn').dataset;
  const isWhole = inside && seenAt(0.1) && seenAt(0.9);
  return isWhole ? [] : [[card, when, part.getAttribute('class') ?? part.tagName, inside]];
});"""
# Every card before and after its answer.
WALK = f"""async (watched) => {{
  {LOOK}
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const drawn = async () => {{ for (let i = 0; i < 4; i++) await frame(); }};
  const faults = [];
  for (let i = 0; i < document.querySelectorAll('.learn-dots button').length; i++) {{
    document.querySelectorAll('.learn-dots button')[i].click();
    await drawn();
    faults.push(...look('asking', watched.asking));
    document.querySelector('.learn-choice').click();
    await drawn();
    faults.push(...look('answered', watched.answered));
  }}
  return faults;
}}"""
SIZE = """() => {
  const text = document.querySelector('.learn-ask legend');
  return parseFloat(getComputedStyle(text).fontSize) * text.getBoundingClientRect().width / text.offsetWidth;
}"""
HELD = (
    "[...document.querySelectorAll('.learn-dots button')].every((dot) => dot.scrollWidth <= dot.offsetWidth)"
)
IN_FRAME = """() => [...document.querySelectorAll('.learn-picture :is(.is-names, .is-named)')].map((cell) => {
  const [box, frame] = [cell, cell.closest('.learn-picture')].map((part) => part.getBoundingClientRect());
  return box.left >= frame.left && box.right <= frame.right;
})"""
VIEW = """(trace) => {
  const host = document.body.appendChild(Object.assign(document.createElement('div'), { id: 'other' }));
  const view = mountDecodeView(host, DECODE_VIEW_STYLE);
  view.receive(JSON.stringify({ kind: 'trace', run: 'r', trace }));
  host.querySelector('[data-act=lecture]').click();
}"""
TREE = ".mdv-node[data-node='0'] .chip, .mdv-bonus"
WHOLE = {
    "asking": f".learn-title, .learn-choice, .learn-picture, {TREE}",
    "answered": f".learn-title, .learn-answer > p, .learn-picture, .mdv-grid > :not(.learn-away), {TREE}",
}
ANSWER = {"asking": ".learn-title", "answered": ".learn-answer > p"}  # where the rest scrolls


@pytest.fixture
def page(tour):
    """With no card answered, out of lecture mode."""
    tour.evaluate(TAKE, FIRST)
    yield tour
    if tour.locator(".learn.is-lecture").count():
        tour.keyboard.press("Escape")
        tour.wait_for_selector(".learn:not(.is-lecture)")


def lecture(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.locator(".learn-title").focus()
    page.keyboard.press("l")
    page.wait_for_selector(".learn.is-lecture")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_lecture_shows_question_answer_and_picture_whole(page, width, height):
    lecture(page, width, height)
    assert page.evaluate(HELD)  # no number of a card is wider than its button
    assert page.evaluate(WALK, WHOLE if width > 640 else ANSWER) == []
    assert width < 640 or page.evaluate(SIZE) >= height / 36


def test_the_verdict_is_not_covered_outside_lectures_either(page):
    page.set_viewport_size({"width": 1440, "height": 757})
    assert page.evaluate(WALK, ANSWER) == []


def test_the_glossary_lies_over_a_lecture(page):
    lecture(page, 1280, 720)
    page.keyboard.press("g")
    terms = page.locator(".learn-terms")
    terms.wait_for(state="visible")
    assert page.evaluate(f"() => {{ {LOOK} return look('open', '.learn-glossary summary'); }}") == []
    page.keyboard.press("g")
    terms.wait_for(state="hidden")


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_the_row_stay_beside_the_two_rivals(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    page.locator(".learn-dots button").nth(3).click()
    page.wait_for_selector(".learn-picture .is-named")
    assert page.evaluate(IN_FRAME) == [True] * 3


def test_the_view_of_decode_keeps_tree_and_mask_side_by_side_and_grows(page):
    page.evaluate(VIEW, FIRST)
    places = []
    for width, height in [(1280, 720), (1920, 1080)]:
        page.set_viewport_size({"width": width, "height": height})
        drawn(page)
        tree, mask = (page.locator(f"#other .mdv-area-{part}").bounding_box() for part in ("tree", "mask"))
        assert tree["x"] + tree["width"] < mask["x"]
        assert mask["y"] < tree["y"]  # beside text and steps too
        places.append(page.locator("#other .mdv-columns text").first.bounding_box()["height"])
    assert places[1] / places[0] > 1.4
    page.evaluate("document.querySelector('#other').remove()")
