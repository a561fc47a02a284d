"""The phases of a step, the strip of cache slots, the alternatives at a node and the curve of the bar."""

from __future__ import annotations

import json

import pytest
import tiny
from places import drawn

from medusa_core.config import GenerationConfig
from ui.records.messages import message_trace

pytestmark = pytest.mark.browser

PHASES = ["propose", "layout", "mask", "verify", "accept", "commit", "next"]
RUNS = {
    "typical": {"acceptance": "typical", "temperature": 0.7, "tree": "cartesian-4x2x2"},
    "large": {"acceptance": "typical", "temperature": 0.7, "tree": "cartesian-4x4x3"},
    "plain": {"method": "none"},
    "ngram": {"method": "ngram"},
}


@pytest.fixture(scope="module")
def traces(engine):
    made = {}
    for name, settings in RUNS.items():
        config = GenerationConfig.of(max_new_tokens=20, **settings)
        made[name] = tiny.recorded(engine, config).finish()
    return made


@pytest.fixture
def show(view, tell, traces):
    """Call it with the name of a run: the page with that run's first step."""
    view.set_viewport_size({"width": 1440, "height": 2400})
    view.emulate_media(reduced_motion="reduce")
    view.mouse.move(0, 0)

    def show_run(name: str):
        tell(message_trace(name, traces[name])).locator(".mdv").focus()
        return view

    return show_run


def settle(page, settings: dict) -> None:
    script = "(detail) => host.dispatchEvent(new CustomEvent('settings', { detail }))"
    page.evaluate(script, settings or None)
    drawn(page)


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    drawn(page)


def phase(page) -> tuple[str, str]:
    root = page.locator(".mdv")
    return root.get_attribute("data-step"), root.get_attribute("data-phase")


def words(page, role: str) -> str:
    return page.locator(f"[data-role={role}]").inner_text()


def test_keys_and_clicks_step_through_the_phases(show):
    page = show("typical")
    assert phase(page) == ("0", "whole")
    for expected in PHASES:
        press(page, ".")
        assert phase(page) == ("0", expected)
        assert page.locator(f".mdv-phase[data-phase={expected}]").get_attribute("aria-pressed") == "true"
    press(page, ".")
    assert phase(page) == ("1", "propose")
    press(page, ",")
    assert phase(page) == ("0", "next")
    press(page, "Shift+ArrowLeft")
    assert phase(page) == ("0", "commit")
    page.locator(".mdv-phase[data-phase=accept]").click()
    drawn(page)
    assert phase(page) == ("0", "accept")
    press(page, "ArrowRight")
    assert phase(page) == ("1", "accept")
    press(page, "Escape")
    assert phase(page) == ("1", "whole")


def test_the_transport_plays_the_phases_and_goes_on_to_the_next_step(show):
    page = show("typical")
    page.locator(".mdv-speed").select_option("8")
    page.locator(".mdv").focus()
    press(page, ".", "Space")
    page.wait_for_selector('.mdv:not([data-step="0"]):not([data-phase="whole"])')  # on and on, phase by phase
    press(page, "Space")
    page.wait_for_selector("[data-act=play][aria-label^=Play]")


def test_each_phase_says_what_happens_with_the_numbers_of_the_step(show, traces):
    page = show("typical")
    trace = traces["typical"]
    step, sizes = trace["steps"][0], trace["sizes"]
    count, length, path = len(step["nodes"]), step["cache_length"], step["path"]
    said = {}
    for name in PHASES:
        press(page, ".")
        said[name] = words(page, "phase"), words(page, "shapes")
    assert "3 heads at once" in said["propose"][0]
    assert f"V = {sizes['vocabulary']}" in said["propose"][1]
    assert f"d = {sizes['hidden']}" in said["propose"][1]
    assert f"stand at position {length + 1}" in said["layout"][0]
    assert f"L + N = {length} + {count}" in said["mask"][1]
    assert f"in each of {sizes['layers']} layers" in said["verify"][1]
    assert "ε = 0.09" in said["accept"][0]
    assert f"L + A = {length + len(path)}" in said["commit"][1]
    for place, node in enumerate(path):
        assert place == node or f"slot {length + node} moves to {length + place}" in said["commit"][0]
    assert f"{count - len(path)} other rows are forgotten" in said["commit"][0]
    assert step["bonus"]["text"].strip() in said["next"][0]
    share = round(100 * step["ms"]["verify"] / step["ms"]["total"])
    assert f"{share} % of the step" in said["verify"][1]


def test_nothing_is_judged_before_its_phase(show):
    page = show("typical")
    numbers = {}
    for name in PHASES:
        press(page, ".")
        numbers[name] = page.locator(".mdv-node:not(.is-root) .num").first.text_content()
        judged = page.locator(".mdv-node.is-accepted, .mdv-node.is-rejected").count()
        assert bool(judged) == (name in ("accept", "commit", "next"))
        assert page.locator(".mdv-bonus").count() == (name == "next")
    assert [numbers[name][0] for name in ("propose", "verify", "accept")] == ["q", "p", "p"]
    assert numbers["layout"].startswith("pos ")


def test_other_drafters_have_the_phases_they_go_through(show):
    page = show("plain")
    assert page.locator(".mdv-bonus .small").text_content() == "next token"
    press(page, ".")
    assert phase(page) == ("0", "verify")
    assert page.locator(".mdv-phase:visible").evaluate_all("all => all.map((b) => b.dataset.phase)") == [
        "verify", "commit", "next"
    ]  # fmt: skip
    page = show("ngram")
    for _ in range(40):
        if page.locator(".mdv-node").count() > 1:
            break
        press(page, "ArrowRight")
    tag = page.locator(".mdv-treelegend code").inner_text()  # the legend says what it means
    assert tag in page.locator(".mdv-node .small:not(.num)").all_text_contents()
    press(page, ".")
    assert "N-grams of the text" in words(page, "phase")
    assert "hidden state" not in words(page, "phase") + words(page, "shapes")


def test_the_strip_gives_every_node_a_slot_and_kept_rows_their_new_one(show, traces):
    page = show("typical")
    step = traces["typical"]["steps"][0]
    # Drawn a little later than the tree; until then it is the strip of the run before.
    page.wait_for_function(
        "(count) => document.querySelectorAll('.mdv-area-kv .mdv-kvcell').length === count",
        arg=len(step["nodes"]) + len(step["path"]),
    )
    shown = page.locator(".mdv-area-kv .mdv-kvcell").evaluate_all(
        "all => all.map((c) => [Number(c.dataset.node), c.querySelector('.slot').textContent, "
        "c.querySelector('.position')?.textContent ?? null, c.classList.contains('is-lost')])"
    )
    base, path = step["cache_length"], step["path"]
    during = [
        [i, str(base + i), str(base + node["depth"]), i not in path] for i, node in enumerate(step["nodes"])
    ]
    after = [[node, str(base + place), None, False] for place, node in enumerate(path)]
    assert shown == during + after
    page.locator('.mdv-node[data-node="2"]').hover()
    page.wait_for_selector('.mdv-area-kv .mdv-kvcell.lit[data-node="2"]')
    caption = words(page, "kv-caption")
    assert "have the same position, but other slots" in caption
    assert f"slot {base + 2} ({base} + node 2)" in caption


def test_the_models_alternatives_stand_beside_the_heads_guesses(show, traces):
    page = show("typical")
    step = traces["typical"]["steps"][0]
    page.locator('.mdv-node[data-node="1"]').click()
    page.wait_for_selector('.mdv-node.pinned[data-node="1"]')
    rows = page.locator("[data-role=alternatives] tbody tr").evaluate_all(
        "all => all.map((row) => [...row.children].map((cell) => cell.innerText.trim()))"
    )
    said = next(row for row in step["after"] if row["node"] == 0)
    heads = {node["token_id"]: node["draft_p"] for node in step["nodes"] if node["origin"]["head"] == 1}
    assert [row[0].split()[0] for row in rows[:5]] == [text.replace(" ", "␣") for text in said["texts"]]
    for row, token, p in zip(rows, said["token_ids"], said["p"], strict=False):
        assert float(row[1]) == pytest.approx(p, rel=0.06, abs=0.006)
        assert (row[2] == "–") == (token not in heads)
    assert len([row for row in rows if row[2] != "–"]) == len(heads)
    page.keyboard.press("Escape")


def test_the_curve_has_a_point_for_every_guess_and_moves_with_the_sliders(show, traces):
    page = show("typical")
    step = traces["typical"]["steps"][0]
    line = page.locator("[data-role=curve] .line")
    before = line.get_attribute("d")
    assert page.locator("[data-role=curve] .mdv-dotnode").count() == len(step["nodes"]) - 1
    assert page.locator("[data-role=curve] .disc").count() == sum(
        node["passes"] for node in step["nodes"][1:]
    )
    settle(page, {"acceptance": "typical", "temperature": 0.7, "epsilon": 0.01, "delta": 0.01})
    assert line.get_attribute("d") != before
    passing = sum(node["p"] > min(0.01, 0.01 * 2.718281828 ** -node["entropy"]) for node in step["nodes"][1:])
    assert page.locator("[data-role=curve] .disc").count() == passing


def test_another_temperature_is_tried_on_this_step_and_can_be_run(show):
    page = show("typical")
    settle(page, {"acceptance": "typical", "temperature": 1.2, "epsilon": 0.09, "delta": 0.3})
    said = words(page, "whatif")
    assert said.startswith("At temperature 1.2 (p and H interpolated")
    assert "a real run might have gone another way" in said
    page.evaluate("() => host.addEventListener('again', () => { window.again = true; })")
    page.locator("[data-act=again]").click()
    assert page.evaluate("window.again")
    settle(page, {"acceptance": "match", "temperature": 0, "epsilon": 0.09, "delta": 0.3})
    assert words(page, "whatif").startswith(
        "At temperature 0, where only the model’s most likely token passes"
    )
    assert page.locator("[data-role=curve]").count() == 0


def test_a_large_tree_is_folded_and_every_node_stays_within_reach(show, traces):
    page = show("large")
    step = traces["large"]["steps"][0]
    shown = page.locator(".mdv-node").count()
    hidden = page.locator(".mdv-fold text").evaluate_all(
        "all => all.map((t) => Number(t.textContent.match(/\\d+/)))"
    )
    assert shown < 30
    assert shown + sum(hidden) == len(step["nodes"])
    assert {0, *step["path"]} <= set(
        page.locator(".mdv-node").evaluate_all("a => a.map((n) => Number(n.dataset.node))")
    )
    last = len(step["nodes"]) - 1
    page.locator(".mdv-area-kv").scroll_into_view_if_needed()
    page.locator(f'.mdv-area-kv .mdv-kvcell[data-node="{last}"]').first.click()
    page.wait_for_selector(f'.mdv-node.pinned[data-node="{last}"]')
    page.locator(".mdv-folding").click()
    page.wait_for_function(f"document.querySelectorAll('.mdv-node').length === {len(step['nodes'])}")
    for _ in range(4):
        page.locator("[title='Zoom in']").click()
    page.locator(".mdv-treebox").evaluate("(box) => box.scrollTo(9999, 0)")
    page.wait_for_selector(".mdv-rootaway:visible")
    page.locator(".mdv-folding").click()
    page.keyboard.press("Escape")


@pytest.mark.parametrize("name", ["typical", "large"])
def test_what_stands_on_a_chip_is_at_least_12_pixels_high(show, name):
    page = show(name)
    sizes = page.locator(".mdv-node text, .mdv-kvpic text").evaluate_all(
        "all => all.map((t) => parseFloat(getComputedStyle(t).fontSize) * (t.getScreenCTM().a))"
    )
    assert min(sizes) >= 12


def test_the_reason_is_told_by_one_element_that_stays(show):
    page = show("typical")
    before = page.locator("[data-role=why]").element_handle()
    said = before.inner_text()
    press(page, "ArrowDown", "ArrowDown")
    assert before.evaluate("(node) => node.isConnected && node.getAttribute('aria-live')") == "polite"
    assert before.inner_text() != said
    press(page, "Escape")


def test_a_trace_without_the_new_fields_is_shown_with_letters_for_the_sizes(show, traces):
    page = show("typical")
    old = json.loads(json.dumps(traces["typical"]))
    del old["sizes"], old["temperatures"]
    for step in old["steps"]:
        del step["after"]
    page.evaluate("(text) => window.view.receive(text)", message_trace("old", old))
    press(page, ".")
    assert "hidden state [1, d]" in words(page, "shapes")
    press(page, "ArrowDown", "ArrowDown")
    assert page.locator("[data-role=alternatives]").count() == 0
    settle(page, {"acceptance": "typical", "temperature": 1.2, "epsilon": 0.09, "delta": 0.3})
    assert page.locator(".mdv.is-hypothetical").count() == 0
    press(page, "Escape", "Escape")
