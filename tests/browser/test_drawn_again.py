"""A view keeps what it has drawn: after any way to a step it shows what a fresh one shows there."""

from __future__ import annotations

import re

import pytest
import tiny
from page_messages import step_messages
from view_trace import make_trace

from medusa_core.config import GenerationConfig
from medusa_core.trace.replay.view import web_script
from ui.records.messages import message_begin, message_end, message_trace

pytestmark = pytest.mark.browser

VIEW = """window.mountFresh = () => {
  const host = document.createElement("div");
  document.body.append(host);
  return mountDecodeView(host, DECODE_VIEW_STYLE);
}"""
# What tree and text hold two frames later.
DRAWN = """async (view) => {
  for (let i = 0; i < 2; i++) await new Promise((done) => requestAnimationFrame(done));
  const parts = [".mdv-treepic", ".mdv-columns", ".mdv-strip"];
  return parts.map((part) => view.root.querySelector(part).innerHTML);
}"""


@pytest.fixture
def page(empty_page):
    empty_page.set_content("")
    empty_page.add_script_tag(content=web_script())
    empty_page.evaluate(VIEW)
    return empty_page


def shown(page, name: str) -> list[str]:
    """Without what differs between two views."""
    parts = page.evaluate(f"() => ({DRAWN})({name})")
    plain = [re.sub(r'id="[^"]*"| style=""|class=""', "", part) for part in parts]
    # An attribute that was set later stands behind the others.
    return [
        re.sub(r"<(\w+)([^>]*)>", lambda tag: f"<{tag[1]} {sorted(tag[2].split())}>", part) for part in plain
    ]


def traces(engine) -> dict[str, dict]:
    found = {"one shape": make_trace(6)}
    for name, settings in (("ngram", {"method": "ngram"}), ("large", {"tree": "cartesian-4x3x2"})):
        config = GenerationConfig.of(max_new_tokens=30, acceptance="typical", temperature=1.0, **settings)
        found[name] = tiny.recorded(engine, config).finish()
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["one shape", "ngram", "large"])
def test_a_step_looks_the_same_whatever_was_drawn_before(page, engine, name):
    trace = traces(engine)[name]
    text, last = message_trace("run", trace), len(trace["steps"]) - 1
    assert last >= 3
    page.evaluate("(text) => { window.used = mountFresh(); used.receive(text); }", text)
    for step in (last, 1, 2, last - 1, 0, 2):
        page.evaluate("(step) => used.store.goto(step)", step)
        used = shown(page, "used")
        page.evaluate(
            "([text, step]) => { window.fresh = mountFresh(); fresh.receive(text); fresh.store.goto(step); }",
            [text, step],
        )
        assert used == shown(page, "fresh"), step


def test_a_live_run_is_drawn_a_few_times_and_whole_at_its_end(page):
    trace = make_trace(40)
    page.evaluate("""() => {
      window.view = mountFresh();
      window.draws = 0;
      const steps = { attributes: true, attributeFilter: ["data-step"] };
      new MutationObserver(() => draws++).observe(view.root, steps);
    }""")
    page.evaluate("(text) => view.receive(text)", message_begin("live", trace))
    send = """async (texts) => {
      for (const text of texts) {
        view.receive(text);
        await new Promise(requestAnimationFrame);
      }
    }"""
    page.evaluate(send, step_messages("live", trace))
    assert page.evaluate("[view.state.trace.steps.length, draws < 30]") == [40, True]
    page.evaluate("(text) => view.receive(text)", message_end("live", trace))
    page.wait_for_function("view.root.dataset.step === '39'")
    page.evaluate(
        "(text) => { window.fresh = mountFresh(); fresh.receive(text); fresh.store.goto(39); }",
        message_trace("run", trace),
    )
    assert shown(page, "view") == shown(page, "fresh")
    said = """[view, fresh].map(({ root }) => root.querySelector(".mdv-maskpic").getAttribute("aria-label")
      + root.querySelector("[data-role=why]").textContent)"""
    assert len(set(page.evaluate(said))) == 1


def test_the_cache_is_drawn_where_a_busy_page_hears_at_once_that_it_went_and_came_back(page, engine):
    """A browser hands over all changes of what is in sight since it last had time, the newest last."""
    page.evaluate("""() => {
      window.seen = [];
      window.IntersectionObserver = class {
        constructor(told) { this.told = told; window.seen.push(this); }
        observe(target) { this.target = target; }
        unobserve() {}
        disconnect() {}
      };
      window.view = mountFresh();
      for (const { told, target } of window.seen) {
        told([false, true].map((isIntersecting) => ({ target, isIntersecting })));
      }
    }""")
    name, trace = next(iter(traces(engine).items()))
    page.evaluate("(message) => view.receive(message)", message_trace(name, trace))
    page.wait_for_selector(".mdv-kvpic .mdv-kvcell")
