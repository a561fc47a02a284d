"""The Trees tab in a browser: what is seen at once, regrowing, measuring, files, and use in other tabs."""

from __future__ import annotations

import json

import pytest
import tiny
from places import says, turn_to

from medusa_core.trees.tree import Topology

pytestmark = pytest.mark.browser

FIELD = "#trees-nodes input[type=number]"
NODES = "document.querySelectorAll('#trees-drawing [data-node]').length"


def open_trees(page):
    turn_to(page, "Trees")
    page.wait_for_selector("#trees-heatmap .main-svg")
    return page


@pytest.fixture
def trees_tab(warm_page):
    """One page for all tests that do not mind what was measured; a grown tree of 16 nodes."""
    page = open_trees(warm_page)
    if page.evaluate(NODES) != 16:
        if page.input_value(FIELD) == "16":
            set_nodes(page, 15)  # a tree that was loaded gives way to one that is grown
        set_nodes(page, 16)
    return page


def set_nodes(page, nodes: int) -> None:
    page.fill(FIELD, str(nodes))
    page.press(FIELD, "Tab")
    page.wait_for_function(f"{NODES} === {nodes}")


def seen_width(page) -> float:
    """Pixels of the tree's frame: the drawing may scroll in it, but must not be cut to nothing."""
    return page.locator("#trees-drawing").bounding_box()["width"]


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


def test_there_is_something_to_see_before_any_measurement(warm_page):
    page = open_trees(warm_page)  # the first test of this file, so nothing has been measured in this page
    assert page.evaluate(NODES) == 16
    assert seen_width(page) > 300
    assert "16 nodes with the root" in page.locator("#trees-words").inner_text()
    chart_has(page, "#trees-tokens", "best cartesian tree")
    chart_has(page, "#trees-speed", "press “Measure on this machine”")
    assert page.locator("#trees-best").is_disabled()


def test_the_slider_regrows_the_tree_and_marks_the_charts(trees_tab):
    set_nodes(trees_tab, 5)
    assert "5 nodes with the root" in trees_tab.locator("#trees-words").inner_text()
    chart_has(trees_tab, "#trees-tokens", "5 nodes")


def test_a_size_typed_beyond_the_slider_is_its_largest(trees_tab):
    trees_tab.fill(FIELD, "200")
    trees_tab.press(FIELD, "Tab")
    trees_tab.wait_for_function(f"{NODES} === 64")


def test_measuring_fills_the_charts_and_finds_the_best_size(trees_tab):
    page = trees_tab
    page.click("#trees-run")
    says(page, "#trees-status", "Measured in 5 rounds")
    chart_has(page, "#trees-speed", "best:")
    chart_has(page, "#trees-time", "measured median")
    says(page, "#trees-source", "Step times:")
    best = int(page.locator("#trees-status").inner_text().split("Best size: ")[1].split()[0])
    page.click("#trees-best")
    page.wait_for_function(f"{NODES} === {best}")
    unfold_files(page)
    with page.expect_download() as download:
        page.click("#trees-save-numbers")
    record = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert len(record["accuracies"]) == tiny.HEADS
    assert record["latency"][0]["nodes"] == 1


def test_use_in_side_by_side_opens_that_part_though_its_place_showed_another(trees_tab):
    turn_to(trees_tab, "Methods")
    turn_to(trees_tab, "Trees")
    trees_tab.click("#trees-use-race")
    trees_tab.wait_for_selector("#race-prompt:visible")


def test_a_tree_is_saved_and_loaded(trees_tab, tmp_path):
    page = trees_tab
    set_nodes(page, 6)
    unfold_files(page)
    with page.expect_download() as download:
        page.click("#trees-save")
    saved = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert Topology.from_choices(saved["choices"]).size == 6
    load(page, tmp_path, json.dumps({"choices": [[0], [1], [2]]}))
    says(page, "#trees-words", "Loaded tree: 4 nodes")
    page.wait_for_function(f"{NODES} === 4")
    set_nodes(page, 9)
    assert "Grown tree: 9 nodes" in page.locator("#trees-words").inner_text()


def test_a_bad_file_is_named_as_text_and_changes_nothing(trees_tab, tmp_path):
    page = trees_tab
    load(page, tmp_path, '{"choices": [["<img src=x onerror=alert(1)>"]]}')
    says(page, "#trees-status", "Not loaded: tree node ['<img src=x onerror=alert(1)>']")
    assert page.locator("#trees-status img, .toast-body img[src=x]").count() == 0
    assert page.evaluate(NODES) == 16


# The height of the title, and how far the chart, whose own margin holds one line, is below it.
TITLE = """const { title, below } = (() => {
  const parts = ["label", ".js-plotly-plot"].map((part) => document.querySelector(`#trees-speed ${part}`));
  const [title, chart] = parts.map((part) => part.getBoundingClientRect());
  return { title: title.height, below: chart.top + 34 - title.bottom };
})();"""


def test_a_title_of_two_lines_moves_its_chart_down(trees_tab):
    size = trees_tab.viewport_size
    trees_tab.set_viewport_size({"width": 1280, "height": 844})
    beside = trees_tab.evaluate(f"() => {{ {TITLE} return below; }}")
    trees_tab.set_viewport_size({"width": 390, "height": 844})
    moved = f"(beside) => {{ {TITLE} return title > 40 && Math.abs(below - beside) < 2; }}"
    trees_tab.wait_for_function(moved, arg=beside)
    trees_tab.set_viewport_size(size)
