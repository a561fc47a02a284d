"""Prints how fast the page answers.

Scrubbing and pointing with trees of 64 nodes and 400 steps, the lag of mask and reason behind the tree of a
run that goes on, the first picture after the page's load, the frames while the stage plays, the size of such
a trace, and the speed of a run that is streamed into a drawing page.

``python tests/support/page_speed.py`` from the repository root; needs playwright and a chromium on the path.
Except for the first picture and the frames, the page holds only the view, so what is measured is its own work
and the browser's painting of it. The other two are measured in the app as shipped, served here.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launching import launch
from long_trace import repeated
from page_messages import step_messages
from places import unfold

from medusa_core.api import load
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.decoding import Step
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.packed import packed
from medusa_core.trace.replay.view import web_script
from ui.records.messages import message_begin, message_trace
from ui.runs.session import Session
from ui.tabs.layout import build_page, gradio_theme, page_css, page_head

STEPS = 400
ACTIONS = (
    ("scrub", "scrub", STEPS),
    ("next step", "next", STEPS),
    ("hover", "hover", 200),
    ("ε", "bar", 100),
)
MOST = 50.0  # milliseconds at the 95th percentile
MOST_LAG = 100.0
MOST_FIRST = 1500.0  # from the address to the first tree on the screen
MOST_MEGABYTES = 2.0
MOST_FRAME = 20.0  # at the 95th percentile: 60 frames a second
OPENING_SECONDS, PHASES_SECONDS = 15, 20
LOADS = 5
RUN_TOKENS = 512
AT_REST_MS = 6000
LIVE_STEPS, LIVE_MS = 40, 100  # steps of a live run, time between them
# From the event to the end of the task after the frame that shows its result.
TIMED = """async ([act, count]) => {
  const times = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  }));
  await frame();
  for (let i = 0; i < count; i++) {
    const wait = performance.now();
    while (performance.now() - wait < 4) await new Promise((done) => setTimeout(done));
    const start = performance.now();
    window[act](i);
    await frame();
    times.push(performance.now() - start);
  }
  return times;
}"""
ACTS = """() => {
  const range = document.querySelector(".mdv-range");
  window.scrub = (i) => { range.value = (i * 7) % STEPS; range.dispatchEvent(new Event("input")); };
  window.next = (i) => { range.value = i; range.dispatchEvent(new Event("input")); };
  window.hover = (i) => {
    const nodes = document.querySelectorAll(".mdv-node");
    nodes[i % nodes.length].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  };
  window.bar = (i) => document.getElementById("host").dispatchEvent(new CustomEvent("settings", { detail:
    { acceptance: "typical", temperature: 0.7, epsilon: 0.02 + (i % 50) / 100, delta: 0.3 } }));
}""".replace("STEPS", str(STEPS))


# How long after the tree the mask shows the same step, judged by their attributes.
LAGS = """async ([messages, wait]) => {
  const root = document.querySelector(".mdv");
  const mask = root.querySelector(".mdv-maskpic");
  const lags = [];
  let shown = null;
  const changed = () => { shown ??= performance.now(); };
  new MutationObserver(changed).observe(root, { attributeFilter: ["data-step"] });
  new MutationObserver(() => {
    if (shown !== null) lags.push(performance.now() - shown);
    shown = null;
  }).observe(mask, { attributeFilter: ["aria-label"] });
  for (const message of messages) {
    window.view.receive(message);
    await new Promise((done) => setTimeout(done, wait));
  }
  await new Promise((done) => setTimeout(done, 1000));
  return shown === null ? lags : [...lags, 1000];
}"""
FIRST_PICTURE = """() => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".mdv-node")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.firstPicture = performance.now(); }));
  }).observe(document, { subtree: true, childList: true });
}"""


# Times between frames, either all or those in which something moves by itself.
FRAMES = """([seconds, moving]) => new Promise((done) => {
  const times = [];
  const start = performance.now();
  let last = null;
  const next = () => {
    const now = performance.now();
    const counts = !moving || document.getAnimations().some((one) => one.playState === "running");
    if (last !== null && counts) times.push(now - last);
    last = counts ? now : null;
    if (now - start < 1000 * seconds) requestAnimationFrame(next);
    else done(times);
  };
  requestAnimationFrame(next);
})"""


def long_trace() -> dict:
    """A run of the embedded model with a tree of 64 nodes, its steps repeated."""
    engine, config = load(), GenerationConfig.of(tree="mc_sim_7b_63", max_new_tokens=64)
    prompt = engine.encode("Once upon a time")
    builder = TraceBuilder(engine, config, prompt)
    for step in engine.stream(prompt, config):
        builder.add(step)
    return repeated(builder.finish(), STEPS)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def answers(page: Any, trace: dict) -> int:
    """Print how long the view takes to answer; return how many of the figures are too slow."""
    slow = 0
    page.evaluate("(text) => window.view.receive(text)", message_trace("speed", trace))
    page.wait_for_selector(".mdv-node")
    page.evaluate(ACTS)
    for state in ("folded", "all nodes"):
        for name, act, count in ACTIONS:
            times = page.evaluate(TIMED, [act, count])
            median, late = percentile(times, 0.5), percentile(times, 0.95)
            slow += late > MOST
            print(f"{state:10} {name:10} median {median:5.1f} ms   95 % within {late:5.1f} ms")
        page.locator(".mdv-folding").click()
    return slow


def lags(page: Any, trace: dict) -> int:
    """Print how far mask and reason of a live run are behind its tree."""
    short = {**trace, "steps": trace["steps"][:LIVE_STEPS]}
    messages = [message_begin("live", short), *step_messages("live", short)]
    times = page.evaluate(LAGS, [messages, LIVE_MS])
    median, late = percentile(times, 0.5), percentile(times, 0.95)
    print(f"mask of a live run behind its tree: median {median:5.1f} ms   95 % within {late:5.1f} ms")
    return int(late > MOST_LAG)


def first_pictures(browser: Any, address: str) -> int:
    """Print the time to the first tree, in a browser without a cached copy of the page and in one with it."""
    times = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    for _ in range(LOADS):
        page = context.new_page()
        page.add_init_script(f"({FIRST_PICTURE})()")
        page.goto(address)
        times.append(page.wait_for_function("window.firstPicture").json_value())
        page.close()
    context.close()
    print(f"first picture {times[0]:6.0f} ms in a fresh browser, {percentile(times[1:], 0.5):6.0f} ms later")
    return sum(time > MOST_FIRST for time in (times[0], percentile(times[1:], 0.5)))


def frames(browser: Any, address: str) -> int:
    """Print the times between frames while the opening and then the phases of steps play."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    slow = 0
    page.wait_for_selector(".mdv-opening[open][data-time]")
    found = {"opening": page.evaluate(FRAMES, [OPENING_SECONDS, False])}
    page.keyboard.press("Escape")
    page.keyboard.press(".")
    page.wait_for_selector("#decode-view .mdv[data-phase=propose]")
    page.locator("#decode-view [data-act=play]").click()
    found["phases"] = page.evaluate(FRAMES, [PHASES_SECONDS, True])
    page.close()
    for name, between in found.items():
        median, late = percentile(between, 0.5), percentile(between, 0.95)
        slow += late > MOST_FRAME
        times = f"median {median:5.1f} ms   95 % within {late:5.1f} ms, {len(between)} frames"
        print(f"frames of the {name:8} {times}")
    return slow


def streamed_runs(browser: Any, address: str) -> None:
    """Print tokens per second of runs that the page draws as they go, from first step to last."""
    runs: list[list[tuple[float, int]]] = []
    add = TraceBuilder.add

    def noted(builder: TraceBuilder, step: Step) -> None:
        add(builder, step)
        if step.index == 0:
            runs.append([])
        runs[-1].append((time.perf_counter(), len(step.emitted)))

    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script("localStorage.setItem('medusa-opening', 'seen')")
    page.goto(address)
    page.wait_for_selector(".mdv-node")
    unfold(page)
    tokens = page.locator("#decode-settings input[type=number][aria-label*='New tokens']").first
    tokens.fill(str(RUN_TOKENS))
    tokens.press("Enter")
    page.get_by_label("Go on after the end of the text").first.check()
    page.wait_for_timeout(AT_REST_MS)  # in which the machine's steps are timed
    TraceBuilder.add = noted
    for _ in range(LOADS):
        page.get_by_role("button", name="Run", exact=True).first.click()
        for more in ("!", ""):
            page.wait_for_function(
                f"{more}document.querySelector('.mdv').innerText.includes('finished: token limit reached')"
            )
        page.wait_for_timeout(1000)
    TraceBuilder.add = add
    page.close()
    speeds = [sum(count for _, count in run[1:]) / (run[-1][0] - run[0][0]) for run in runs]
    print(f"streamed runs of {RUN_TOKENS} tokens: {', '.join(f'{speed:.0f}' for speed in speeds)} tokens/s")


def main() -> int:
    """Print the figures; 1 when one is beyond its limit."""
    trace = long_trace()
    size = len(json.dumps(packed(trace), ensure_ascii=False, separators=(",", ":")).encode()) / 1e6
    print(f"{STEPS} steps of {len(trace['steps'][0]['nodes'])} nodes, {size:.2f} MB as a trace file")
    with sync_playwright() as manager:
        browser = manager.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_content("<div id='host'></div>")
        page.add_script_tag(content=web_script())
        page.evaluate("window.view = mountDecodeView(document.getElementById('host'), DECODE_VIEW_STYLE)")
        beyond = answers(page, trace) + lags(page, trace)
        page.close()
        session = Session(LoadConfig())
        session.load()  # the app loads it as soon as the server is up, which is not measured here
        demo = build_page(session)
        address = launch(demo, theme=gradio_theme(), css=page_css(), head=page_head())
        beyond += first_pictures(browser, address) + frames(browser, address) + (size > MOST_MEGABYTES)
        streamed_runs(browser, address)
        browser.close()
        demo.close(verbose=False)
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
