"""The linked view in a browser: what it draws, how it is driven, and that its what-if agrees with Python."""

from __future__ import annotations

import pytest
from page_messages import step_messages
from places import drawn
from view_trace import DELTA, EPSILON, HOSTILE, TREE, judge, make_trace

from medusa_core.trace.replay.view import web_script
from ui.records.messages import message_begin, message_end, message_trace

pytestmark = pytest.mark.browser

TRACE = make_trace()
MATCH_TRACE = make_trace(4, "match")
DESKTOP = {"width": 1440, "height": 1000}
MOUNT = """() => {
  for (const id of ["view", "match", "live"]) {
    const host = document.body.appendChild(Object.assign(document.createElement("div"), { id }));
    mountDecodeView(host, DECODE_VIEW_STYLE, { whole: true });
  }
}"""


@pytest.fixture(scope="module")
def views(shared_pages):
    """A view with a finished trace, one of a match run, and one that is fed live."""
    page = shared_pages.take()
    page.set_viewport_size(DESKTOP)
    page.add_script_tag(content=web_script())
    page.evaluate(MOUNT)
    tell(page, "#view", message_trace("done", TRACE, "recorded example"))
    tell(page, "#match", message_trace("match", MATCH_TRACE))
    yield page
    shared_pages.give_back(page)


@pytest.fixture
def page(views):
    """One page for all these tests, back at the first step, with no node chosen and no what-if."""
    page = views
    page.mouse.move(0, 0)
    for view in ("#view", "#match"):
        send(page, view, "settings", None)
    goto(page, 0)
    page.locator("#view .mdv").focus()
    page.keyboard.press("Escape")
    page.wait_for_selector("#view .mdv-node.lit", state="detached")
    return page


def shown_step(page, view: str = "#view") -> int:
    return int(page.locator(f"{view} .mdv").get_attribute("data-step"))


def wait_for_step(page, step: int, view: str = "#view") -> None:
    page.wait_for_selector(f'{view} .mdv[data-step="{step}"]')


def goto(page, step: int, view: str = "#view") -> None:
    page.locator(view).evaluate("(host, step) => host.decodeView.store.jump(step)", step)
    drawn(page)
    wait_for_step(page, step, view)


def tell(page, view: str, message: str) -> None:
    page.locator(view).evaluate("(host, message) => host.decodeView.receive(message)", message)
    drawn(page)


def send(page, view: str, name: str, detail: dict | None) -> None:
    script = "(view, [name, detail]) => view.dispatchEvent(new CustomEvent(name, {detail}))"
    page.locator(view).evaluate(script, [name, detail])
    # The view draws in the next frame; until then it shows what was sent before.
    drawn(page)


def accepted_in(page, view: str = "#view") -> list[int]:
    marks = page.locator(f"{view} .mdv-node.is-root, {view} .mdv-node.is-accepted")
    return sorted(int(value) for value in marks.evaluate_all("all => all.map(node => node.dataset.node)"))


def test_draws_every_node_and_token(page):
    assert page.locator("#view .mdv-node").count() == len(TREE) + 1
    tokens = sum(len(step["emitted"]) for step in TRACE["steps"])
    assert page.locator("#view .mdv-strip .mdv-token").count() == tokens
    assert "␣bonus" in page.locator("#view .mdv-bonus").text_content()
    assert page.locator("#view [data-role=summary]").inner_text().startswith("Step 1 of 8: 11 guesses")
    assert page.locator("#view .mdv-badges .is-note").inner_text() == "recorded example"
    assert accepted_in(page) == sorted(TRACE["steps"][0]["path"])


def test_keys_buttons_and_scrubber_move_the_step(page):
    page.evaluate("document.activeElement.blur()")  # as before the first click
    page.keyboard.press("ArrowRight")
    wait_for_step(page, 1)
    page.locator("#view .mdv").focus()
    page.keyboard.press("Home")
    wait_for_step(page, 0)
    for key, step in [("ArrowRight", 1), ("End", 7), ("ArrowLeft", 6), ("Home", 0), ("ArrowLeft", 0)]:
        page.keyboard.press(key)
        wait_for_step(page, step)
    page.locator("#view [data-act=next]").click()
    wait_for_step(page, 1)
    page.locator("#view .mdv-range").fill("5")
    wait_for_step(page, 5)
    assert page.locator("#view [data-count=tokens] b").inner_text() == str(
        sum(len(step["emitted"]) for step in TRACE["steps"][:6])
    )
    assert page.locator("#view .mdv-step.later").count() == 2


def test_playing_stops_at_the_end(page):
    page.locator("#view .mdv-speed").select_option("8")
    goto(page, 5)
    page.locator("#view .mdv").focus()
    page.keyboard.press("Space")
    wait_for_step(page, 7)
    page.wait_for_selector("#view [data-act=play][aria-label^=Play]")


def test_keys_choose_pin_and_free_a_node(page):
    page.locator("#view .mdv").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view .mdv-node.lit.pinned")
    node = page.locator("#view .mdv-node.lit").get_attribute("data-node")
    page.keyboard.press("ArrowRight")
    wait_for_step(page, 1)
    assert page.locator("#view .mdv-node.lit").get_attribute("data-node") == node  # pinned: stays over steps
    page.keyboard.press("Escape")
    page.wait_for_selector("#view .mdv-node.lit", state="detached")


def test_hovering_a_mask_row_lights_node_and_token(page):
    step = TRACE["steps"][0]
    node = step["path"][-1]
    mask = page.locator("#view .mdv-maskpic")
    mask.scroll_into_view_if_needed()
    box = mask.bounding_box()
    cell = 24  # twelve nodes leave room for the largest cells
    page.mouse.move(box["x"] + box["width"] - 6, box["y"] + 78 + (node + 0.5) * cell)
    page.wait_for_selector(f'#view .mdv-node.lit[data-node="{node}"]')
    page.wait_for_selector(f'#view .mdv-step.current .mdv-token.lit[data-node="{node}"]')
    family = page.locator("#view .mdv-node.family")
    lit = family.evaluate_all("all => all.map(node => Number(node.dataset.node))")
    assert sorted(lit) == sorted(step["path"])
    assert "may not see column" in page.locator("#view [data-role=mask-caption]").inner_text()


def test_clicking_a_token_selects_its_node(page):
    node = TRACE["steps"][3]["path"][-1]
    page.locator(f'#view .mdv-strip .mdv-token[data-step="3"][data-node="{node}"]').click()
    wait_for_step(page, 3)
    page.wait_for_selector(f'#view .mdv-node.lit.pinned[data-node="{node}"]')


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 0.05), (0.02, 0.9), (0.3, 0.3), (0.9, 0.9), (0.09, 0.01)]
)
def test_what_if_agrees_with_python(page, epsilon, delta):
    for index in range(len(TRACE["steps"])):
        goto(page, index)
        send(page, "#view", "settings", {"epsilon": epsilon, "delta": delta})
        page.wait_for_selector("#view .mdv-banner:not([hidden])")
        path = judge(TRACE["steps"][index]["nodes"], epsilon, delta)
        assert accepted_in(page) == sorted(path)
        words = page.locator("#view [data-role=whatif]").inner_text()
        assert f"{len(path)} token" in words


def test_what_if_goes_back_to_the_recorded_verdict(page):
    recorded = accepted_in(page)
    for undo in (None, {"epsilon": EPSILON, "delta": DELTA}, "button"):
        send(page, "#view", "settings", {"epsilon": 0.0001, "delta": 0.0001})
        page.wait_for_selector("#view .is-hypothetical .mdv-grid, #view .mdv.is-hypothetical")
        assert page.locator("#view [data-role=verdict]").inner_text().startswith("what if: ")
        if undo == "button":
            page.locator("#view [data-act=recorded]").click()
        else:
            send(page, "#view", "settings", undo)
        page.wait_for_selector("#view .mdv:not(.is-hypothetical)")
        assert accepted_in(page) == recorded


def test_what_if_on_a_greedy_run_needs_the_temperature_of_its_numbers(page):
    typical = {"acceptance": "typical", "epsilon": EPSILON, "delta": DELTA}
    send(page, "#match", "settings", typical | {"temperature": 1})
    page.wait_for_selector("#match .mdv.is-hypothetical")
    words = page.locator("#match [data-role=whatif]").inner_text()
    assert "If judged by typical acceptance at temperature 1 with" in words
    assert accepted_in(page, "#match") == sorted(judge(MATCH_TRACE["steps"][0]["nodes"], EPSILON, DELTA))
    assert page.locator("#view .mdv.is-hypothetical").count() == 0  # the other views stay as they are
    send(page, "#match", "settings", typical | {"temperature": 0})  # greedy, whatever the rule
    page.wait_for_selector("#match .mdv:not(.is-hypothetical)")
    assert accepted_in(page, "#match") == sorted(MATCH_TRACE["steps"][0]["path"])


def test_hostile_texts_are_only_text(page):
    page.on("dialog", lambda dialog: pytest.fail(f"model text ran: {dialog.message}"))
    goto(page, 1)
    for i, text in enumerate(HOSTILE):
        page.locator(f'#view .mdv-node[data-node="{i}"]').hover()
        page.wait_for_selector(f'#view .mdv-node.lit[data-node="{i}"]')
        expected = text or f"#{100 + i}"
        assert page.locator("#view .mdv-bigtoken").inner_text() == expected
    assert "Once <b>upon</b> a time ${1+1}" in page.locator("#view .mdv-prompt").inner_text()
    assert page.locator("#view .mdv script, #view .mdv img, #view .mdv b:has-text('upon')").count() == 0


def test_the_inspector_gives_the_numbers(page):
    step = TRACE["steps"][0]
    node = next(n for n in step["nodes"][1:] if not n["passes"] and n["parent"] in step["path"])
    page.locator(f'#view .mdv-node[data-node="{node["id"]}"]').hover()
    page.wait_for_selector(f'#view .mdv-node.lit[data-node="{node["id"]}"]')
    sentence, origin = page.locator("#view [data-role=why]").inner_text(), node["origin"]
    assert sentence.startswith(f"Head {origin['head']}’s guess {origin['rank'] + 1} ")
    assert f"min(0.09, 0.3·e^−{node['entropy']:.2f})" in sentence
    assert "rejected" in sentence


def test_streaming_follows_until_the_reader_goes_back(page):
    live, steps = "#live", step_messages("live", TRACE)
    assert page.locator(f"{live} .mdv-empty").is_visible()
    tell(page, live, message_begin("live", TRACE))
    page.wait_for_selector(f"{live} .mdv.is-waiting")
    for index in range(3):
        tell(page, live, steps[index])
        wait_for_step(page, index, live)
    page.locator(f"{live} [data-act=first]").click()
    wait_for_step(page, 0, live)
    tell(page, live, steps[3])
    page.wait_for_function("document.querySelector('#live .mdv-counter').textContent === '1 / 4'")
    assert shown_step(page, live) == 0
    node = page.locator(f'{live} .mdv-node[data-node="2"]')
    node.click()
    tell(page, live, message_end("live", TRACE))
    page.wait_for_function("!document.querySelector('#live .mdv-badges .is-live')")
    page.wait_for_selector(f'{live} .mdv-node.pinned[data-node="2"]')
    assert page.locator(f"{live} .mdv-counter").inner_text() == "1 / 4"
    assert "finished: " in page.locator(f"{live} .mdv-badges").inner_text()


def test_a_phone_has_no_horizontal_overflow(page):
    page.set_viewport_size({"width": 390, "height": 844})
    for index in range(3):
        goto(page, index)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#view .mdv-area-tree").scroll_into_view_if_needed()
    bar = page.locator("#view .mdv-area-transport").bounding_box()
    assert bar["y"] + bar["height"] <= 845  # the transport stays in reach
    page.set_viewport_size(DESKTOP)


def test_every_control_is_large_enough(page):
    sizes = page.locator("#view button:visible, #view select:visible, #view input:visible").evaluate_all(
        "all => all.map(e => [e.title || e.className, e.offsetWidth, e.offsetHeight])"
    )
    assert len(sizes) > 10
    assert [size for size in sizes if min(size[1:]) < 24] == []
