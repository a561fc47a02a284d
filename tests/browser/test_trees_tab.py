"""The Trees tab in a browser: regrowing, measuring, files, use in other tabs, and the editor of the tree."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny
from places import says, set_tokens, turn_to

from medusa_core.trees.tree import Topology
from ui.tabs.trees import timing

pytestmark = pytest.mark.browser

FIELD = "#trees-nodes input[type=number]"
EDITOR = "#trees-drawing .tree-edit"
SIZE_IS = "size => document.querySelectorAll('#trees-drawing [data-node]').length === size"
NODES = "document.querySelector('.tree-edit-host').treeEditor.nodes()"
EARLIER = """() => {
  const { state, receive } = document.querySelector('.tree-edit-host').treeEditor;
  return receive({ ...state, step_ms: state.stepMs, choices: [[0]] });
}"""
AT_SPEED = """ms => {
  const { state, receive } = document.querySelector('.tree-edit-host').treeEditor;
  const timed = step_ms => receive({ ...state, step_ms, choices: state.nodes });
  const before = state.stepMs;
  timed(Object.fromEntries([...Array(65).keys()].map(size => [size, ms])));
  const words = document.querySelector('.tree-edit-panel').innerText;
  timed(before);
  return words;
}"""
FORGE = """(text) => { // once
  const { treeEditor } = document.querySelector('.tree-edit-host');
  const { nodes } = treeEditor;
  treeEditor.nodes = () => {
    treeEditor.nodes = nodes;
    return JSON.parse(text);
  };
}"""


def open_trees(page):
    turn_to(page, "Trees")
    page.wait_for_selector(f"{EDITOR} [data-node]")
    page.wait_for_selector("#trees-heatmap .main-svg")
    return page


@pytest.fixture(scope="module")
def opened(warm_page):
    """One page for all tests but that which measures."""
    return open_trees(warm_page)


@pytest.fixture(scope="module")
def grown(opened):
    """The tree of 16 nodes that the tab begins with."""
    has_size(opened, 16)
    return tree_of(opened)


@pytest.fixture
def page(opened, grown):
    """The tab with that tree; it is not grown again where a test left it, since the charts are drawn anew."""
    turn_to(opened, "Trees")
    if tree_of(opened) != grown:
        if opened.input_value(FIELD) == "16":
            set_nodes(opened, 15)  # a tree that was loaded or edited gives way to one that is grown
        set_nodes(opened, 16)
    return opened


def has_size(page, nodes: int) -> None:
    page.wait_for_function(SIZE_IS, arg=nodes)


def set_nodes(page, nodes: int) -> None:
    page.fill(FIELD, str(nodes))
    page.press(FIELD, "Tab")
    has_size(page, nodes)


def tree_of(page) -> list[tuple[int, ...]]:
    return [tuple(node) for node in page.evaluate(NODES)]


def unfold_files(page) -> None:
    if not page.locator("#trees-save").is_visible():
        page.locator("#trees-files button").first.click()
        page.locator("#trees-save").wait_for(state="visible")


def load(page, tmp_path, text: str) -> None:
    file = tmp_path / "<b>mine.json"
    file.write_text(text, encoding="utf-8")
    unfold_files(page)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Load a tree or numbers").click()
    chooser.value.set_files(file)


def chart_has(page, chart: str, words: str) -> None:
    page.wait_for_function(
        "([id, words]) => document.querySelector(id + ' .js-plotly-plot')?.textContent.includes(words)",
        arg=[chart, words],
    )


def test_there_is_something_to_see_before_any_measurement(page):
    # The drawing may scroll in its frame, but must not be cut to nothing.
    assert page.locator("#trees-drawing").bounding_box()["width"] > 300
    assert "16 nodes with the root" in page.locator("#trees-words").inner_text()
    chart_has(page, "#trees-tokens", "best cartesian tree")
    chart_has(page, "#trees-speed", "press “Measure on this machine”")
    assert page.locator("#trees-best").is_disabled()


def test_the_slider_regrows_the_tree_up_to_its_largest_and_marks_the_charts(page):
    set_nodes(page, 5)
    assert "5 nodes with the root" in page.locator("#trees-words").inner_text()
    chart_has(page, "#trees-tokens", "5 nodes")
    page.fill(FIELD, "200")
    page.press(FIELD, "Tab")
    has_size(page, 64)


def test_use_in_side_by_side_opens_that_part_though_its_place_showed_another(page):
    turn_to(page, "Methods")
    turn_to(page, "Trees")
    page.click("#trees-use-race")
    page.wait_for_selector("#race-prompt:visible")


def test_a_tree_is_saved_and_loaded(page, tmp_path):
    set_nodes(page, 6)
    unfold_files(page)
    with page.expect_download() as download:
        page.click("#trees-save")
    saved = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert Topology.from_choices(saved["choices"]).size == 6
    load(page, tmp_path, json.dumps({"choices": [[0], [1], [2]]}))
    says(page, "#trees-words", "Loaded tree: 4 nodes")
    has_size(page, 4)
    set_nodes(page, 9)
    assert "Grown tree: 9 nodes" in page.locator("#trees-words").inner_text()


def test_a_bad_file_is_named_as_text_and_changes_nothing(page, tmp_path):
    before = tree_of(page)
    load(page, tmp_path, '{"choices": [["<img src=x onerror=alert(1)>"]]}')
    says(page, "#trees-status", "Not loaded: tree node ['<img src=x onerror=alert(1)>']")
    assert page.locator("#trees-status img, .toast-body img[src=x]").count() == 0
    assert tree_of(page) == before


# The height of the title, and how far the chart, whose own margin holds one line, is below it.
TITLE = """const { title, below } = (() => {
  const parts = ["label", ".js-plotly-plot"].map((part) => document.querySelector(`#trees-speed ${part}`));
  const [title, chart] = parts.map((part) => part.getBoundingClientRect());
  return { title: title.height, below: chart.top + 34 - title.bottom };
})();"""


def test_a_title_of_two_lines_moves_its_chart_down(page):
    size = page.viewport_size
    page.set_viewport_size({"width": 1280, "height": 844})
    beside = page.evaluate(f"() => {{ {TITLE} return below; }}")
    page.set_viewport_size({"width": 390, "height": 844})
    moved = f"(beside) => {{ {TITLE} return title > 40 && Math.abs(below - beside) < 2; }}"
    page.wait_for_function(moved, arg=beside)
    page.set_viewport_size(size)


# --- The editor: edits by click and by key, and a run with the tree that was made.


# Of each column: how far its name's middle is from that of the chips below it, and whether the box shows it.
COLUMNS = """() => {
  const box = document.querySelector('#trees-drawing .mdv-treebox');
  const end = box.getBoundingClientRect().left + box.clientWidth;
  return [...box.querySelectorAll('.mdv-columns text')].map((name, depth) => {
    const first = box.querySelector(`[role=treeitem][aria-level="${depth + 1}"] .chip`);
    const chip = first.getBoundingClientRect();
    const { left, width } = name.getBoundingClientRect();
    return { off: Math.abs(left + width / 2 - chip.left - chip.width / 2), seen: chip.right <= end };
  });
}"""


def figure(page, role: str) -> str:
    return page.locator(f"{EDITOR} [data-figure={role}] b").inner_text()


def last_words(page) -> str:
    return page.locator(".tree-edit-last").inner_text()


def test_every_column_is_named_above_its_chips_and_seen(page):
    before, found = page.viewport_size, []
    for width, height in ((1440, 900), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        set_nodes(page, 16 + len(found))  # drawn for this width
        found.append(page.evaluate(COLUMNS))
    page.set_viewport_size(before)
    for columns in found:
        assert len(columns) > 4
        assert all(column["off"] < 2 for column in columns)
        assert all(column["seen"] for column in columns)


def test_a_click_adds_a_guess_and_another_takes_a_subtree_out(page):
    before, length = tree_of(page), float(figure(page, "length"))
    ghost = page.locator(f"{EDITOR} .is-best")
    added = tuple(map(int, ghost.get_attribute("data-add").split(".")))
    ghost.click()
    assert set(tree_of(page)) - set(before) == {added}
    assert figure(page, "nodes") == "17"
    assert last_words(page).startswith(f"Added head {len(added)}, guess {added[-1] + 1}: +")
    says(page, "#trees-words", "Edited tree: 17 nodes with the root")  # the charts' mark follows with it
    assert not page.evaluate(EARLIER)  # as at the end of a measurement that began before the edit
    assert set(tree_of(page)) - set(before) == {added}
    gone = [node for node in tree_of(page) if node[:1] == (0,)]
    page.locator(f"{EDITOR} [data-node='0'] .tree-edit-cross").click()
    assert all(node[0] != 0 for node in tree_of(page))
    assert f"with the {len(gone) - 1} guesses after it: −" in last_words(page)
    assert float(figure(page, "length")) < length
    assert page.locator(f"{EDITOR} [data-add='0']").count() == 1  # the lowest guess that is not there


def test_the_time_of_a_step_has_the_digits_that_its_speed_follows_from(page):
    assert "At 0.53 ms a step that is" in page.evaluate(AT_SPEED, 0.527)


def test_keys_move_add_remove_and_take_back(page):
    before = tree_of(page)
    page.locator(f"{EDITOR} .mdv-treepic").focus()
    press = page.keyboard.press
    press("Delete")
    assert "root is the model’s own token" in last_words(page)
    press("ArrowRight")
    chosen = page.locator(f"{EDITOR} [aria-selected=true]")
    assert chosen.get_attribute("data-node") == "0"
    active = page.locator(f"{EDITOR} .mdv-treepic").get_attribute("aria-activedescendant")
    assert chosen.get_attribute("id") == active
    press("+")
    grown = tree_of(page)
    assert len(grown) == len(before) + 1
    press("Delete")
    assert chosen.get_attribute("data-node") == ""  # its parent
    press("z")
    assert tree_of(page) == grown
    press("z")
    assert tree_of(page) == before
    press("Shift+Z")
    assert tree_of(page) == grown
    page.locator(f"{EDITOR} [data-act=undo]").focus()
    press("Control+z")  # from anywhere in the editor
    assert tree_of(page) == before
    page.locator(f"{EDITOR} .mdv-treepic").focus()
    press("End")  # a ghost
    label = chosen.get_attribute("aria-label")
    assert label.startswith("add head ")
    press("Enter")
    assert chosen.get_attribute("data-node") is not None
    assert chosen.get_attribute("aria-label") in label.removeprefix("add ")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "tree"


def test_a_run_has_the_tree_that_was_made(page):
    page.locator(f"{EDITOR} [data-node='1'] .tree-edit-cross").click()
    page.locator(f"{EDITOR} .is-best").click()
    made = tree_of(page)
    page.click("#trees-use-decode")  # at once: the server need not have heard of the edits
    page.wait_for_selector("#decode-prompt:visible")
    says(page, "#decode-status", f"Tree for the next run: yours, from Trees: {len(made) + 1} nodes")
    set_tokens(page, 12)
    page.click("#decode-run")
    says(page, "#decode-status", "12 tokens in")
    trace = page.evaluate(
        "document.querySelector('#decode-view .mdv-host').decodeView.state.trace.config.tree"
    )
    assert [tuple(node) for node in trace] == made
    turn_to(page, "Trees")
    assert tree_of(page) == made  # still there


@pytest.mark.slow
def test_the_tree_to_start_from_can_be_chosen_and_taken_back(page):
    before = tree_of(page)

    def start(name: str) -> None:
        page.locator("#trees-start input").click()
        page.get_by_role("option", name=name).click()

    start("empty: only the root")
    has_size(page, 1)
    page.click("#trees-use-decode")
    says(page, ".toast-body", "The tree is only the root")
    page.locator(f"{EDITOR} .is-best").click()
    start("empty: only the root")  # once more
    has_size(page, 1)
    start("published: vicuna_7b_stage2")
    has_size(page, 64)
    ghosts = page.locator(f"{EDITOR} .is-ghost[data-add]")
    few = ghosts.count()
    page.locator(f"{EDITOR} [data-act=ghosts]").click()
    assert ghosts.count() > few  # a large tree shows the likeliest alone
    ghosts.first.click()
    assert "the limit here is 64" in last_words(page)
    page.locator(f"{EDITOR} [data-act=ghosts]").click()
    for _ in range(4):  # published, empty, a guess, empty
        page.locator(f"{EDITOR} [data-act=undo]").click()
    assert tree_of(page) == before


def test_a_forged_tree_is_refused_in_words_that_stay_text(page):
    page.evaluate(FORGE, '[["<img src=x onerror=alert(1)>"]]')
    page.click("#trees-use-decode")
    says(page, ".toast-body", "<img src=x onerror=alert(1)>")
    assert page.locator(".toast-body img[src=x]").count() == 0
    assert page.locator("#trees-use-decode").is_visible()


def test_measuring_fills_the_charts_and_finds_the_best_size(address, open_page, monkeypatch):
    """In a page of its own, since it counts which guesses are right: from then on another tree grows."""
    page = open_trees(open_page(address))
    monkeypatch.setattr(timing, "EFFORT", replace(timing.EFFORT, rounds=2))
    page.click("#trees-run")
    says(page, "#trees-status", "Measured in 2 of 2 rounds")
    chart_has(page, "#trees-speed", "best:")
    chart_has(page, "#trees-time", "measured median")
    says(page, "#trees-source", "Step times:")
    best = int(page.locator("#trees-status").inner_text().split("Best size: ")[1].split()[0])
    page.click("#trees-best")
    has_size(page, best)
    unfold_files(page)
    with page.expect_download() as download:
        page.click("#trees-save-numbers")
    record = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert len(record["accuracies"]) == tiny.HEADS
    assert record["latency"][0]["nodes"] == 1
