"""The view's marks: a guess through the phases, rows a drafter saw, a copy's source, a run that goes on."""

from __future__ import annotations

import pytest
import tiny
from page_messages import step_messages
from places import drawn
from view_trace import make_trace

from medusa_core.config import GenerationConfig
from ui.records.messages import message_begin

pytestmark = pytest.mark.browser

# How far each flight to a phase ends from the place that is drawn for its node, and what it changes on the
# way. It is one call, since flights may be over before a busy machine is at a second one.
FLIGHTS = """async ([phase, where, step]) => {
  const { store } = window.view;
  if (step) store.goto(step);
  store.set({ phase });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const middle = (part) => {
    const box = part.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  return [...document.querySelectorAll(".mdv-flight")].map((element) => {
    element.stamp ??= Math.random();
    const [flight] = element.getAnimations();
    const place = where && document.querySelector(`${where}[data-node="${element.dataset.flight}"]`);
    const keys = flight ? [...new Set(flight.effect.getKeyframes().flatMap(Object.keys))] : [];
    if (flight) flight.finish();
    const off = flight && place ? Math.hypot(...middle(place).map((at, i) => at - middle(element)[i])) : null;
    return { node: element.dataset.flight, stamp: element.stamp, off, keys };
  });
}"""
NOT_CHANGED = {"offset", "computedOffset", "easing", "composite"}  # keys of a keyframe beside properties


@pytest.fixture
def shown(tell):
    return tell(make_trace())


def test_a_guess_is_one_element_from_its_head_to_the_text(shown):
    seen = {}
    for phase, where in (
        ("propose", ".mdv-node"),
        ("layout", ".mdv-phasepic .mdv-kvcell"),
        ("mask", None),
        ("verify", ".mdv-phasepic .mdv-kvcell"),
        ("accept", ".mdv-node"),
        ("commit", ".mdv-phasepic .mdv-kvcell:not(.after)"),
        ("next", ".mdv-step.current .mdv-token"),
    ):
        flights = {each["node"]: each for each in shown.evaluate(FLIGHTS, [phase, where, None])}
        assert len(flights) >= 11, phase  # the guesses; the root has no head that it is born under
        for node, flight in flights.items():
            assert seen.setdefault(node, flight["stamp"]) == flight["stamp"], phase
            assert set(flight["keys"]) - NOT_CHANGED <= {"transform", "opacity"}
        ends = [flight["off"] for flight in flights.values() if flight["off"] is not None]
        assert (where is None) or (ends and max(ends) < 3), phase


def test_a_step_forward_takes_what_was_kept_into_the_text(shown):
    flights = shown.evaluate(FLIGHTS, [None, '.mdv-step[data-step="0"] .mdv-token', 1])
    kept = [each for each in flights if each["off"] is not None]
    assert len(kept) == len(make_trace()["steps"][0]["path"])
    assert max(each["off"] for each in kept) < 3
    shown.wait_for_function("!document.querySelector('.mdv-flight')")


def test_nothing_flies_for_who_wants_no_motion(shown):
    shown.emulate_media(reduced_motion="reduce")
    for phase in ("propose", "layout"):
        assert shown.evaluate(FLIGHTS, [phase, None, None]) == []
    shown.emulate_media(reduced_motion="no-preference")


# --- The cache rows that a drafter saw: marked in strip and mask by bins, however long the context.


LENGTH = 20_000


def shares(length, ranges, most):
    """By counting rows one by one."""
    seen = [0.0] * min(most, length)
    for start, end in ranges:
        for row in range(start, end):
            seen[row * len(seen) // length] += 1
    return [count * len(seen) / length for count in seen]


def test_bins_hold_the_share_of_rows_seen(view):
    for length, most, ranges in (
        (900, 90, [[0, 40], [55, 60], [200, 201], [899, 900]]),
        (5, 90, [[0, 1], [3, 5]]),
        (100, 10, []),
    ):
        step = {"cache_length": length, "drafter_rows": ranges}
        assert view.evaluate("([step, most]) => rowsSeen(step, most)", [step, most]) == pytest.approx(
            shares(length, ranges, most)
        )
    assert view.evaluate("rowsSeen({ cache_length: 9 }, 3)") is None


def test_a_long_context_is_drawn_by_bins_and_said(tell):
    trace = make_trace(3)
    for number, step in enumerate(trace["steps"]):
        step["cache_length"] += LENGTH
        if number == 1:
            step["drafter_rows"] = [[row, row + 1] for row in range(0, LENGTH, 4)]
    view = tell(trace)
    view.locator(".mdv-area-kv").scroll_into_view_if_needed()  # it is drawn while it is in sight
    view.wait_for_selector(".mdv-kvcell")
    assert view.locator(".mdv-kvprefix .seen").count() == 0
    view.evaluate("view.store.goto(1)")
    view.wait_for_selector(".mdv-area-kv .mdv-kvprefix .seen")
    assert view.locator(".mdv-area-kv .mdv-kvprefix .seen").count() <= 2 * 90  # during the step and after it
    words = f"{LENGTH // 4} committed rows of {trace['steps'][1]['cache_length']}"
    assert words in view.locator("[data-role=kv-caption]").inner_text()
    assert words in view.locator("[data-role=mask-caption]").inner_text()
    sent = view.evaluate("view.state.trace.steps[1].drafter_rows.length")
    assert sent == len(trace["steps"][1]["drafter_rows"])


def test_a_window_is_said_where_rows_lie_before_it(tell):
    trace = make_trace(3)
    trace["model"] |= {"context": 24_000, "extend": "window", "window": 1024}
    trace["steps"][2]["cache_length"] += LENGTH
    length = trace["steps"][2]["cache_length"]
    view = tell(trace)
    view.locator(".mdv-area-kv").scroll_into_view_if_needed()
    assert "last 1024" not in view.locator("[data-role=mask-caption]").inner_text()
    view.evaluate("view.store.goto(2)")
    view.wait_for_function(
        f"document.querySelector('.mdv-kvprefix')?.textContent.includes('{length - 1023} … ')"
    )
    assert "1023 rows" in view.locator(".mdv-kvprefix").first.text_content()
    for caption in ("mask", "kv"):
        words = view.locator(f"[data-role={caption}-caption]").inner_text()
        assert "Every layer sees only the last 1024 positions" in words
    assert "context 24000 in a window of 1024" in view.locator(".mdv").first.inner_text()
    command = view.evaluate("(trace) => asCommand(recipeOf(trace))", trace)
    assert "--context=24000 --extend=window" in command


# --- Where a copied guess stood before is outlined in the text, for the prompt's tokens and for new ones.


OUTLINED = "() => [...document.querySelectorAll('.mdv-strip .source')].map((part) => part.innerText)"
OF_PROMPT = "() => document.querySelectorAll('.mdv-prompt .source').length"


def test_the_source_of_a_guess_and_of_those_before_it_is_outlined(engine, tell):
    prompt = engine.encode("abcfeabcabd")
    config = GenerationConfig.of(method="lookup", max_new_tokens=30, ignore_eos=True, lookup_ngram=1)
    trace = tiny.recorded(engine, config, prompt).finish()
    page = tell(trace)
    assert page.locator(".mdv-prompt").inner_text() == "abcfeabcabd"
    seen_in_prompt = seen_in_text = 0
    for number in range(len(trace["steps"])):
        page.evaluate("(at) => window.view.store.goto(at)", number)
        drawn(page)
        nodes = trace["steps"][number]["nodes"]
        last = nodes[-1]
        if last["origin"]["back"] is None:
            continue
        page.evaluate("(node) => window.view.store.set({ node, pinned: true })", last["id"])
        drawn(page)
        outlined = page.evaluate(OUTLINED)
        assert sorted(set(outlined)) == sorted({node["text"] for node in nodes[1:]})
        assert "outlined in the text" in page.locator(".mdv-area-why").inner_text()
        in_prompt = page.evaluate(OF_PROMPT)
        seen_in_prompt += in_prompt
        seen_in_text += len(outlined) - in_prompt
    assert seen_in_prompt
    assert seen_in_text
    page.evaluate("() => window.view.store.set({ node: 0, pinned: true })")
    drawn(page)
    assert page.evaluate(OUTLINED) == []


# --- Mask and reason of a run that goes on follow its tree, also where no further step comes for a while.


TRACE = make_trace()


def test_mask_and_reason_come_to_show_the_step_that_the_tree_shows(tell):
    for message in [message_begin("r", TRACE), *step_messages("r", TRACE)[:3]]:
        page = tell(message)
    page.wait_for_selector('.mdv[data-step="2"]')
    rows = TRACE["steps"][2]["cache_length"]
    page.wait_for_selector(f'.mdv-maskpic[aria-label*="{rows} committed row"]', timeout=5000)
    position = page.locator(".mdv-facts dd").nth(1)
    last = TRACE["steps"][2]["path"][-1]
    depth = TRACE["steps"][2]["nodes"][last]["depth"]
    assert position.inner_text() == str(rows + depth)
