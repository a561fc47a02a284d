"""A run of many steps in the view: the details of a few windows, fetched again, and a page of the text."""

from __future__ import annotations

import json

import pytest
from long_trace import kept, messages, numbered, repeated, windows
from places import drawn
from view_trace import make_trace

from medusa_core.trace.replay.view import web_script
from ui.records.messages import message_trace

pytestmark = pytest.mark.browser

STEPS = 1200
# The server: it notes what is asked for, and answers when it is told to.
SERVER = """([texts, key]) => {
  window.asked = [];
  window.held = null; // answers wait while this is a list
  window.refusal = null;
  window.medusaChannel = {
    drawn() {},
    steps: async (own, number, signal) => {
      if (own !== key) throw new Error("");
      asked.push(number);
      if (refusal) throw new Error(refusal);
      if (held) await new Promise((done) => held.push(done));
      if (signal && signal.aborted) throw new Error("aborted");
      return JSON.parse(texts[number]);
    },
  };
}"""
SETTLED = "document.querySelector('.mdv').dataset.details === 'here'"
KEY = "k" * 22


@pytest.fixture(scope="module")
def trace():
    return repeated(make_trace(8), STEPS)


@pytest.fixture(scope="module")
def record(trace):
    return kept(trace)


@pytest.fixture(scope="module")
def told(trace):
    return messages("live", trace, together=100)


def mounted(page, told, record, key=KEY):
    page.set_content("<div id='host'></div>")
    page.add_script_tag(content=web_script())
    page.evaluate(SERVER, [windows(record), KEY])
    page.evaluate("window.view = mountDecodeView(document.getElementById('host'), DECODE_VIEW_STYLE)")
    sent = [numbered(key, message) if key else message for message in told]
    page.evaluate("(texts) => texts.forEach((text) => view.receive(text))", sent)
    drawn(page)


@pytest.fixture
def page(empty_page, told, record):
    mounted(empty_page, told, record)
    return empty_page


def goto(page, index, wait=True):
    page.evaluate("(index) => view.store.goto(index)", index)
    drawn(page)
    if wait:
        page.wait_for_function(SETTLED)
        drawn(page)


def detailed(page):
    """Steps whose details are in the page, and whether the packed ones are."""
    return page.evaluate(
        "[view.state.trace.steps.filter((step) => !isBrief(step)).length, view.state.packed.steps === null]"
    )


def test_details_are_kept_for_some_windows_and_come_back_as_they_were(page, trace, record):
    assert page.evaluate("isWindowed(view.state)")  # so that the tour does not take it
    count, dropped = detailed(page)
    assert count <= 7 * 128
    assert dropped
    sent = page.evaluate(
        "(text) => unpackedStep(JSON.parse(text)[5], 5, view.state.tables)", windows(record)[0]
    )
    goto(page, 5)
    assert page.evaluate("view.state.trace.steps[5]") == sent
    assert page.evaluate("asked") == [0]
    assert sent["nodes"] == trace["steps"][5]["nodes"]
    assert page.locator(".mdv-node").count() == len(sent["nodes"])
    goto(page, 6)
    assert page.evaluate("asked") == [0]  # both lie in the same window
    # Any path through the run holds a few windows and a page of the text, and every step shows its own tree.
    most = page.evaluate("document.querySelectorAll('*').length")
    for index in range(0, STEPS, 149):
        goto(page, index)
        assert detailed(page)[0] <= 7 * 128
        assert page.evaluate("document.querySelectorAll('*').length") < most + 1500 < 6000
        label = page.locator(".mdv-maskpic").get_attribute("aria-label")
        assert f"{trace['steps'][index]['cache_length']} committed rows" in label
    assert len(page.evaluate("asked")) <= 3 * STEPS / 149  # with the neighbours that are fetched ahead


def test_text_and_counters_come_at_once_and_the_last_request_wins(page, trace):
    page.evaluate("held = []")
    goto(page, 300, wait=False)
    tokens = sum(len(step["emitted"]) for step in trace["steps"][:301])
    assert page.locator("[data-count=tokens] b").inner_text() == str(tokens)
    assert page.locator(".mdv-step.current").get_attribute("data-step") == "300"
    assert page.locator(".mdv").get_attribute("data-details") == "away"
    assert "step 301" in page.locator(".mdv-away").text_content()  # the step is drawn a little later
    assert page.locator(".mdv-node").count() > 0  # the step before stays: nothing flickers
    for key in ["ArrowRight"] * 3 + ["Home"]:  # no key is lost meanwhile
        page.locator(".mdv").press(key)
    drawn(page)
    assert page.locator(".mdv-counter b").inner_text() == "1"
    page.wait_for_function("held.length === 2")
    page.evaluate("held.reverse().forEach((answer) => answer())")
    page.wait_for_function(SETTLED)
    assert page.evaluate("asked") == [2, 0]
    assert page.evaluate("isBrief(view.state.trace.steps[300])")  # details that came too late are not kept
    assert page.locator(".mdv").get_attribute("data-step") == "0"


def test_a_run_that_is_gone_is_said_in_place_of_its_tree(page):
    page.evaluate("refusal = 'The server no longer has it.'")
    goto(page, 10, wait=False)
    page.wait_for_function("document.querySelector('.mdv').dataset.details === 'lost'")
    assert page.locator(".mdv-away").inner_text() == "The server no longer has it."
    assert not page.locator(".mdv-treebox").is_visible()
    for _ in range(5):
        drawn(page)
    assert page.evaluate("asked") == [0]  # it is not asked again and again
    page.evaluate("refusal = null")
    goto(page, STEPS - 1)
    assert page.locator(".mdv-treebox").is_visible()
    goto(page, 10)
    assert page.evaluate("asked") == [0, 0]


def test_a_page_of_the_text_is_laid_out_and_all_of_it_is_found_and_copied(page, trace):
    goto(page, 700)
    shown = page.locator(".mdv-step").count()
    assert 100 < shown < 200
    assert page.locator(".mdv-textmore:visible").count() == 2
    token = page.locator(".mdv-step:not(.current) .mdv-token").nth(40)
    own = token.get_attribute("data-step")
    token.dispatch_event("click")
    page.wait_for_function(f"document.querySelector('.mdv').dataset.step === '{own}'")
    for at, name in ((0, "first"), (-1, "last")):  # the buttons, and scrolling, turn the pages
        before = page.locator(".mdv-step").nth(at).get_attribute("data-step")
        page.locator(".mdv-textmore").nth(at).evaluate("(button) => button.click()")
        assert page.locator(".mdv-step").nth(at).get_attribute("data-step") != before, name
        assert page.locator(".mdv-step").count() < 200
    text = "".join(node["text"] for step in trace["steps"] for node in pathed(step))
    copied = """() => {
      const value = { writeText: async (text) => { window.copied = text; } };
      Object.defineProperty(navigator, "clipboard", { configurable: true, value });
      document.querySelector("[data-act=copy-text]").click();
    }"""
    page.evaluate(copied)
    assert page.evaluate("copied") == trace["prompt"]["text"] + text
    words = text[-60:]
    page.locator(".mdv-find").fill(words)
    page.locator(".mdv-find").press("Enter")
    drawn(page)
    found = page.evaluate("view.state.index")
    before = sum(len(node["text"]) for step in trace["steps"][:found] for node in pathed(step))
    step = "".join(node["text"] for node in pathed(trace["steps"][found]))
    assert text.lower().find(words.lower(), before) < before + len(step)
    page.locator(".mdv-find").fill("no such words anywhere")
    page.locator(".mdv-find").press("Enter")
    assert page.locator(".mdv-found").inner_text() == "not in the text"


def test_the_step_on_screen_stays_in_the_text_where_steps_have_one_token(empty_page, trace):
    """Few tokens fill little of the box: showing one must not scroll the others in and it out."""
    alone = [{**step, "path": [0], "emitted": step["emitted"][:1]} for step in trace["steps"]]
    short = {**trace, "steps": alone}
    empty_page.set_viewport_size({"width": 520, "height": 700})
    mounted(empty_page, messages("live", short, together=100), kept(short))
    for index in (700, 40, STEPS - 1, 300):
        goto(empty_page, index)
        for _ in range(4):  # scroll events come with the frames behind it
            drawn(empty_page)
        assert empty_page.locator(".mdv-step.current").get_attribute("data-step") == str(index)
        inside = empty_page.locator(".mdv-step.current").evaluate(
            """(step) => {
              const [own, box] = [step, step.closest(".mdv-strip")].map((e) => e.getBoundingClientRect());
              return own.top >= box.top - 1 && own.bottom <= box.bottom + 1;
            }"""
        )
        assert inside, index


def pathed(step):
    return [step["nodes"][node] for node in step["path"][: len(step["emitted"])]]


def test_a_run_without_a_server_and_a_foreign_one_ask_for_nothing(empty_page, trace, told, record):
    mounted(empty_page, told, record, key=None)
    assert detailed(empty_page) == [STEPS, False]
    assert not empty_page.evaluate("isWindowed(view.state)")
    short = {**trace, "steps": trace["steps"][:900], "output": {**trace["output"], "steps": 900}}
    empty_page.evaluate("(text) => view.receive(text)", message_trace("file", short))
    goto(empty_page, 10)
    assert detailed(empty_page) == [900, False]
    assert empty_page.evaluate("asked") == []


def test_exports_of_a_long_run_have_what_the_page_no_longer_holds(page, trace, record):
    end = {"kind": "end", "run": "live", "output": trace["output"], "beside": None}
    page.evaluate("(text) => view.receive(text)", numbered(KEY, json.dumps(end)))
    csv = page.evaluate("stepsAsCsv(view.state.trace)").splitlines()
    assert len(csv) == STEPS + 1
    nodes = [int(line.split('","')[1]) for line in csv[1:]]
    assert nodes == [len(step["nodes"]) for step in trace["steps"]]
    steps = page.evaluate("view.store.windows.detailed(120, 300)")
    assert [len(step["nodes"]) for step in steps] == nodes[120:301]
    assert detailed(page)[0] <= 7 * 128


# The same fifty steps again and again, made in the page so that nothing else keeps their text.
GROW = """async ([text, until]) => {
  const message = JSON.parse(text);
  while (view.state.trace.steps.length < until) {
    const first = view.state.trace.steps.length;
    const news = { ...message, first, tokens: [], origins: [], shapes: [], reasons: [] };
    view.receive(JSON.stringify({ kind: "numbered", run: KEY, number: 1, message: news }));
    await new Promise((done) => requestAnimationFrame(done));
  }
}""".replace("KEY", json.dumps(KEY))


def used_bytes(page):
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used


def grown_by(page, steps):
    before = used_bytes(page)
    fifty = messages("live", repeated(make_trace(8), 50))[1]
    page.evaluate(GROW, [fifty, page.evaluate("view.state.trace.steps.length") + steps])
    return (used_bytes(page) - before) / steps


@pytest.mark.slow
def test_a_run_of_many_thousand_steps_takes_little_for_each(empty_page, told, record):
    mounted(empty_page, told, record)
    brief = grown_by(empty_page, 8000)
    assert detailed(empty_page)[0] <= 7 * 128
    nodes = empty_page.evaluate("document.querySelectorAll('*').length")
    assert nodes < 5000
    mounted(empty_page, told, record, key=None)
    whole = grown_by(empty_page, 1000)
    assert brief < 800, whole
    assert whole > 3 * brief
