"""What the view says of a whole run: its overhead and speedup as an estimate, and equality of the text."""

from __future__ import annotations

import pytest
from page_messages import step_messages
from places import says
from view_trace import make_trace

from ui.records.messages import message_begin, message_end
from ui.runs.decode import UNTIMED

pytestmark = pytest.mark.browser


@pytest.fixture
def ended(tell):
    """Call it with what is known beside a run: its card. Steps took 9 ms and made 2 tokens on average."""
    trace = make_trace()
    trace["output"]["tokens_per_step"] = 2.0
    for step in trace["steps"]:
        step["ms"] |= {"total": 9.0}

    def card(beside):
        messages = [message_begin("r", trace), *step_messages("r", trace), message_end("r", trace, beside)]
        found = tell(*messages).locator(".mdv-area-worth")
        found.wait_for(state="visible")
        return found

    return card


def test_the_estimate_is_tokens_per_step_over_overhead_and_says_that_it_is_one(ended):
    faster = "The tree “auto”, here of 3 nodes, makes the most tokens per second"
    card = ended({"timed_ms": [2.5, 4.0], "faster": faster})
    counts = {
        name: card.locator(f"[data-count={name}] b").inner_text()
        for name in ("worth-mean", "worth-overhead", "worth-speedup")
    }
    assert counts == {"worth-mean": "2.00", "worth-overhead": "÷ 1.60×", "worth-speedup": "≈ 1.25×"}
    words = card.locator("[data-role=worth]").inner_text()
    assert words.startswith("An estimate: 2.00 tokens a step ÷ overhead 1.60 ≈ 1.25 times")
    assert f"Side by side measures both with your prompt. {faster} " in words
    assert words.endswith(
        "In this run a step took 9.00 ms (median): it shared the processor with the drawing of this page."
    )


def test_nothing_is_estimated_where_no_step_was_timed(view, tell, ended):
    card = ended({"timed_ms": None})
    assert card.locator("[data-count=worth-speedup], [data-count=worth-overhead]").count() == 0
    assert (
        "so there is no estimate: Side by side measures it" in card.locator("[data-role=worth]").inner_text()
    )
    ended({"timed_ms": None, "untimed": UNTIMED})
    view.wait_for_function(
        "(text) => document.querySelector('[data-role=worth]').innerText.endsWith(text)", arg=UNTIMED
    )
    tell(make_trace())
    says(view, "[data-role=worth]", "holds no time of a plain step")


SAME = {
    ("match", 0.0, "float32", False): "Yes, but for exact ties",
    ("match", 0.0, "bfloat16", True): "Yes: at temperature 0",
    ("typical", 0.0, "bfloat16", False): "Yes, but for near ties",
    ("typical", 0.7, "float32", True): "Not always",
    ("match", 0.7, "float32", True): "The same odds, not the same words",
    ("rejection", 0.7, "float32", True): "The same odds, not the same words",
    ("nucleus", 0.7, "float32", True): "No: tokens are drawn",
}


def test_equality_of_the_text_hangs_on_rule_temperature_and_rounding(view):
    said = view.evaluate(
        """(rows) => rows.map(([acceptance, temperature, dtype, exact]) =>
          samenessWords({ acceptance, temperature }, dtype, exact))""",
        [list(row) for row in SAME],
    )
    assert [words.startswith(begun) for words, begun in zip(said, SAME.values(), strict=True)] == [
        True
    ] * len(SAME)


def test_a_trace_says_whether_its_model_was_exact(tell):
    """Also one from a file, or of a saved page."""
    trace = make_trace()
    trace["model"]["dtype"], trace["config"]["temperature"] = "bfloat16", 0
    for exact, words in ((False, "Yes, but for near ties"), (True, "Yes: at temperature 0")):
        trace["model"]["exact"] = exact
        tell(trace).wait_for_selector(f"[data-role=sameness]:has-text('{words}')")


def test_the_share_dialog_lies_over_the_view_and_moves_nothing(view, tell):
    view.evaluate("mountShare(window.view)")
    tell(make_trace())
    view.locator(".mdv-grid").wait_for()
    before = view.locator(".mdv-grid").bounding_box()
    view.locator(".mdv-shareopen").click()
    assert view.locator(".mdv-share").evaluate("dialog => dialog.matches(':modal')")
    assert view.locator(".mdv-grid").bounding_box() == before
    assert view.locator(".mdv-viewhead .lecture-button").count() == 2
    view.keyboard.press("Escape")
    assert view.locator(".mdv-share").is_hidden()
    assert view.evaluate("document.activeElement.className") == "mdv-shareopen"
