"""The tree editor of the Trees tab: edits by click and by key, and a run with the tree that was made."""

from __future__ import annotations

import json

import pytest
from places import says, turn_to, unfold

pytestmark = pytest.mark.browser

EDITOR = "#trees-drawing .tree-edit"
FIELD = "#trees-nodes input[type=number]"
SIZE_IS = "size => document.querySelectorAll('#trees-drawing [data-node]').length === size"
NODES = "document.querySelector('.tree-edit-host').treeEditor.nodes()"
EARLIER = """() => {
  const { state, receive } = document.querySelector('.tree-edit-host').treeEditor;
  return receive({ ...state, step_ms: state.stepMs, choices: [[0]] });
}"""
FORGE = "text => { document.querySelector('.tree-edit-host').treeEditor.nodes = () => JSON.parse(text); }"


@pytest.fixture(scope="module")
def warm_page(private_address, open_warm_page):
    page = open_warm_page(private_address)
    turn_to(page, "Trees")
    page.wait_for_selector(f"{EDITOR} [data-node]")
    page.wait_for_selector("#trees-heatmap .main-svg")
    return page


@pytest.fixture(scope="module")
def grown(warm_page):
    """The grown tree of eight nodes."""
    set_nodes(warm_page, 8)
    return tree_of(warm_page)


@pytest.fixture
def editor(warm_page, grown):
    """The tab with that tree; it is not grown again where a test left it, since the charts are drawn anew."""
    turn_to(warm_page, "Trees")
    if tree_of(warm_page) != grown:
        if warm_page.input_value(FIELD) == "8":
            set_nodes(warm_page, 7)  # an edited tree gives way to one that is grown
        set_nodes(warm_page, 8)
    return warm_page


def set_nodes(page, nodes: int) -> None:
    page.fill(FIELD, str(nodes))
    page.press(FIELD, "Tab")
    page.wait_for_function(SIZE_IS, arg=nodes)


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


def tree_of(page) -> list[tuple[int, ...]]:
    return [tuple(node) for node in page.evaluate(NODES)]


def figure(page, role: str) -> str:
    return page.locator(f"{EDITOR} [data-figure={role}] b").inner_text()


def last_words(page) -> str:
    return page.locator(".tree-edit-last").inner_text()


def test_every_column_is_named_above_its_chips_and_seen(editor):
    before, found = editor.viewport_size, []
    for width, height in ((1440, 900), (1920, 1080)):
        editor.set_viewport_size({"width": width, "height": height})
        set_nodes(editor, 16 + len(found))  # drawn for this width
        found.append(editor.evaluate(COLUMNS))
    editor.set_viewport_size(before)
    for columns in found:
        assert len(columns) > 4
        assert all(column["off"] < 2 for column in columns)
        assert all(column["seen"] for column in columns)


def test_a_click_adds_a_guess_and_another_takes_a_subtree_out(editor):
    before, length = tree_of(editor), float(figure(editor, "length"))
    ghost = editor.locator(f"{EDITOR} .is-best")
    added = tuple(map(int, ghost.get_attribute("data-add").split(".")))
    ghost.click()
    assert set(tree_of(editor)) - set(before) == {added}
    assert figure(editor, "nodes") == "9"
    assert last_words(editor).startswith(f"Added head {len(added)}, guess {added[-1] + 1}: +")
    says(editor, "#trees-words", "Edited tree: 9 nodes with the root")  # the charts' mark follows with it
    assert not editor.evaluate(EARLIER)  # as at the end of a measurement that began before the edit
    assert set(tree_of(editor)) - set(before) == {added}
    gone = [node for node in tree_of(editor) if node[:1] == (0,)]
    editor.locator(f"{EDITOR} [data-node='0'] .tree-edit-cross").click()
    assert all(node[0] != 0 for node in tree_of(editor))
    assert f"with the {len(gone) - 1} guesses after it: −" in last_words(editor)
    assert float(figure(editor, "length")) < length
    assert editor.locator(f"{EDITOR} [data-add='0']").count() == 1  # the lowest guess that is not there


def test_keys_move_add_remove_and_take_back(editor):
    before = tree_of(editor)
    editor.locator(f"{EDITOR} .mdv-treepic").focus()
    press = editor.keyboard.press
    press("Delete")
    assert "root is the model’s own token" in last_words(editor)
    press("ArrowRight")
    chosen = editor.locator(f"{EDITOR} [aria-selected=true]")
    assert chosen.get_attribute("data-node") == "0"
    active = editor.locator(f"{EDITOR} .mdv-treepic").get_attribute("aria-activedescendant")
    assert chosen.get_attribute("id") == active
    press("+")
    grown = tree_of(editor)
    assert len(grown) == len(before) + 1
    press("Delete")
    assert chosen.get_attribute("data-node") == ""  # its parent
    press("z")
    assert tree_of(editor) == grown
    press("z")
    assert tree_of(editor) == before
    press("Shift+Z")
    assert tree_of(editor) == grown
    editor.locator(f"{EDITOR} [data-act=undo]").focus()
    press("Control+z")  # from anywhere in the editor
    assert tree_of(editor) == before
    editor.locator(f"{EDITOR} .mdv-treepic").focus()
    press("End")  # a ghost
    label = chosen.get_attribute("aria-label")
    assert label.startswith("add head ")
    press("Enter")
    assert chosen.get_attribute("data-node") is not None
    assert chosen.get_attribute("aria-label") in label.removeprefix("add ")
    assert editor.evaluate("document.activeElement.getAttribute('role')") == "tree"


def test_a_run_has_the_tree_that_was_made(editor):
    editor.locator(f"{EDITOR} [data-node='1'] .tree-edit-cross").click()
    editor.locator(f"{EDITOR} .is-best").click()
    made = tree_of(editor)
    editor.click("#trees-use-decode")  # at once: the server need not have heard of the edits
    editor.wait_for_selector("#decode-prompt:visible")
    says(editor, "#decode-status", f"Tree for the next run: yours, from Trees: {len(made) + 1} nodes")
    unfold(editor)
    tokens = editor.locator("#decode-settings input[type=number][aria-label*='New tokens']").first
    tokens.fill("12")
    tokens.press("Tab")
    editor.click("#decode-run")
    says(editor, "#decode-status", "12 tokens in")
    trace = editor.evaluate(
        "document.querySelector('#decode-view .mdv-host').decodeView.state.trace.config.tree"
    )
    assert [tuple(node) for node in trace] == made
    turn_to(editor, "Trees")
    assert tree_of(editor) == made  # still there


@pytest.mark.slow
def test_the_tree_to_start_from_can_be_chosen_and_taken_back(editor):
    before = tree_of(editor)

    def start(name: str) -> None:
        editor.locator("#trees-start input").click()
        editor.get_by_role("option", name=name).click()

    start("empty: only the root")
    editor.wait_for_function(SIZE_IS, arg=1)
    editor.click("#trees-use-decode")
    says(editor, ".toast-body", "The tree is only the root")
    editor.locator(f"{EDITOR} .is-best").click()
    start("empty: only the root")  # once more
    editor.wait_for_function(SIZE_IS, arg=1)
    start("published: vicuna_7b_stage2")
    editor.wait_for_function(SIZE_IS, arg=64)
    ghosts = editor.locator(f"{EDITOR} .is-ghost[data-add]")
    few = ghosts.count()
    editor.locator(f"{EDITOR} [data-act=ghosts]").click()
    assert ghosts.count() > few  # a large tree shows the likeliest alone
    ghosts.first.click()
    assert "the limit here is 64" in last_words(editor)
    editor.locator(f"{EDITOR} [data-act=ghosts]").click()
    for _ in range(4):  # published, empty, a guess, empty
        editor.locator(f"{EDITOR} [data-act=undo]").click()
    assert tree_of(editor) == before


@pytest.mark.parametrize(
    "text",
    [
        '[["<img src=x onerror=alert(1)>"]]',
        pytest.param("[[0, 0]]", marks=pytest.mark.slow),
        pytest.param("[[9000]]", marks=pytest.mark.slow),
    ],
)
def test_a_forged_tree_is_refused_in_words(editor, text):
    editor.evaluate(FORGE, text)
    editor.click("#trees-use-decode")
    says(editor, ".toast-body", json.loads(text)[0][0] if "<" in text else "tree")
    assert editor.locator(".toast-body img[src=x]").count() == 0
    assert editor.locator("#trees-use-decode").is_visible()
