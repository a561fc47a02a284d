"""The cache rows that a drafter saw: marked in strip and mask by bins, however long the context."""

from __future__ import annotations

import pytest
from view_trace import make_trace

from medusa_core.replay.view import web_script
from ui.components.decode_view import message_trace

pytestmark = pytest.mark.browser

LENGTH = 20_000


def shares(length, ranges, most):
    """By counting rows one by one."""
    seen = [0.0] * min(most, length)
    for start, end in ranges:
        for row in range(start, end):
            seen[row * len(seen) // length] += 1
    return [count * len(seen) / length for count in seen]


@pytest.fixture
def page(empty_page):
    empty_page.set_content("<div id='host'></div>")
    empty_page.add_script_tag(content=web_script())
    empty_page.evaluate("window.view = mountDecodeView(document.getElementById('host'), DECODE_VIEW_STYLE)")
    return empty_page


def test_bins_hold_the_share_of_rows_seen(page):
    for length, most, ranges in (
        (900, 90, [[0, 40], [55, 60], [200, 201], [899, 900]]),
        (5, 90, [[0, 1], [3, 5]]),
        (100, 10, []),
    ):
        step = {"cache_length": length, "drafter_rows": ranges}
        assert page.evaluate("([step, most]) => rowsSeen(step, most)", [step, most]) == pytest.approx(
            shares(length, ranges, most)
        )
    assert page.evaluate("rowsSeen({ cache_length: 9 }, 3)") is None


def test_a_long_context_is_drawn_by_bins_and_said(page):
    trace = make_trace(3)
    for number, step in enumerate(trace["steps"]):
        step["cache_length"] += LENGTH
        if number == 1:
            step["drafter_rows"] = [[row, row + 1] for row in range(0, LENGTH, 4)]
    page.evaluate("(text) => view.receive(text)", message_trace(1, "seen", trace))
    page.locator(".mdv-area-kv").scroll_into_view_if_needed()  # it is drawn while it is in sight
    page.wait_for_selector(".mdv-kvcell")
    assert page.locator(".mdv-kvprefix .seen").count() == 0
    page.evaluate("view.store.goto(1)")
    page.wait_for_selector(".mdv-area-kv .mdv-kvprefix .seen")
    assert page.locator(".mdv-area-kv .mdv-kvprefix .seen").count() <= 2 * 90  # during the step and after it
    words = f"{LENGTH // 4} committed rows of {trace['steps'][1]['cache_length']}"
    assert words in page.locator("[data-role=kv-caption]").inner_text()
    assert words in page.locator("[data-role=mask-caption]").inner_text()
    sent = page.evaluate("view.state.trace.steps[1].drafter_rows.length")
    assert sent == len(trace["steps"][1]["drafter_rows"])
