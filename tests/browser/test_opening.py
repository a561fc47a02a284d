"""The opening: a first visit begins with it, any key ends it, it comes once; both lanes write one text."""

from __future__ import annotations

import pytest
from places import says
from shipped_runs import recordings

from medusa_core.trace.packed import packed
from medusa_core.trace.replay.view import read_web

pytestmark = pytest.mark.browser

OPEN = "dialog.mdv-opening[open]"
LANES = """([trace, beside]) => {
  const plan = openingPlan(unpackedTrace(trace), beside);
  const texts = (lane) => lane.passes.flatMap((pass) => pass.tokens.map((node) => node.text)).join("");
  const lanes = [plan.plain, plan.tree];
  return {
    plain: texts(plan.plain), tree: texts(plan.tree),
    passes: lanes.map((lane) => lane.passes.length), ends: lanes.map((lane) => lane.end),
    at: [2, plan.plain.end].map((time) => laneAt(plan.plain, time).tokens),
    said: openingWords(plan, plan.end),
  };
}"""


# Accepted nodes of the first pass with a tree, before and after all weights are read.
ACCEPTED = """(trace) => {
  const show = openingPicture(unpackedTrace(trace), null, false);
  const [pass] = openingPlan(unpackedTrace(trace), null).tree.passes;
  return [0.7, 0.9].map((share) => {
    show.paint(share * pass.end);
    return show.picture.querySelectorAll(".is-accepted").length;
  });
}"""


@pytest.fixture(scope="module")
def opening_page(script_page):
    script_page.add_script_tag(content=read_web("opening/plan.js", "opening/picture.js"))
    return script_page


def test_both_lanes_write_the_beginning_of_the_run_on_one_clock(opening_page):
    trace = recordings()[0].trace
    plan = opening_page.evaluate(LANES, [packed(trace), {"timed_ms": [2.0, 3.0], "sized": {"ms": 3.0}}])
    assert plan["plain"] == plan["tree"]
    assert trace["output"]["text"].startswith(plan["tree"])
    tokens, steps = plan["passes"]
    emitted = [len(step["emitted"]) for step in trace["steps"][:steps]]
    assert tokens == sum(emitted)
    # A pass with a tree takes half as long again, by the times given.
    assert plan["ends"] == [18, pytest.approx(18 * 1.5 * steps / tokens)]
    assert f"{tokens / steps / 1.5:.2f} times as fast" in plan["said"]
    assert plan["at"] == [int(2 / (18 / tokens)), tokens]
    slower = opening_page.evaluate(LANES, [packed(trace), {"timed_ms": [1.0, 6.0], "sized": {"ms": 6.0}}])
    assert "a pass of this small model 6.00 times as long" in slower["said"]


def test_the_accepted_path_has_its_colour_once_the_pass_has_read_all_weights(opening_page):
    trace = recordings()[0].trace
    assert opening_page.evaluate(ACCEPTED, packed(trace)) == [0, len(trace["steps"][0]["path"]) - 1]


def test_a_first_visit_begins_with_it_where_motion_is_wanted_and_any_key_ends_it(shipped_address, open_page):
    page = open_page(shipped_address, alone=True, newcomer=True, reduced_motion="reduce")
    page.wait_for_selector("#decode-view .mdv-node")
    assert page.locator(OPEN).count() == 0
    shows_its_end_when_asked(page)
    says(page, "#model-line", "Medusa heads")  # a reload would break off what the page still loads
    page.emulate_media(reduced_motion="no-preference")
    open_page.reload(page)
    page.wait_for_selector(OPEN)
    page.wait_for_function("document.querySelector('.mdv-opening').dataset.time > 0.5")
    assert page.locator(f"{OPEN} .mdv-filmcount").count() == 4  # names and counters
    page.keyboard.press("x")
    page.wait_for_selector(OPEN, state="detached")
    assert page.evaluate("localStorage.getItem('medusa-opening')") == "seen"
    page.click("[data-act=opening]")  # unasked it does not come where it was seen, as in all other tests
    page.wait_for_selector(OPEN)
    page.locator(".mdv-show").click()
    page.wait_for_selector(OPEN, state="detached")


def shows_its_end_when_asked(page):
    page.click("[data-act=opening]")
    words = " ".join(page.locator(f"{OPEN} .mdv-filmcount").all_text_contents())
    lengths = [len(step["emitted"]) for step in recordings()[0].trace["steps"]]
    counts = [(steps, sum(lengths[:steps])) for steps in range(1, len(lengths) + 1)]
    steps, tokens = next(each for each in counts if f"{each[0]} passes · {each[1]} tokens" in words)
    assert steps < tokens
    assert f"{tokens} passes · {tokens} tokens" in words
    assert page.locator(f"{OPEN} .mdv-showresult").all_text_contents() == [f"{tokens}×", f"{steps}×"]
    assert page.locator(f"{OPEN} g[opacity='1'] > .mdv-showresult").count() == 2


@pytest.mark.slow
def test_its_film_has_a_frame_for_each_moment(shipped_address, open_page):
    page = open_page(shipped_address, alone=True, reduced_motion="reduce")
    page.wait_for_selector("#decode-view .mdv-node")
    page.click("[data-act=opening]")
    with page.expect_download() as download:
        page.click("[data-act=opening-film]")
    with open(download.value.path(), "rb") as file:
        data = file.read()
    assert data.startswith(b"GIF89a")
    assert data.count(b"\x21\xf9\x04") > 100
    assert len(data) < 4_000_000
