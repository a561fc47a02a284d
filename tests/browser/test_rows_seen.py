"""The cache rows that a drafter saw: marked in strip and mask by bins, however long the context."""

from __future__ import annotations

import pytest
from view_trace import make_trace

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


def test_bins_hold_the_share_of_rows_seen(view):
    for length, most, ranges in (
        (900, 90, [[0, 40], [55, 60], [200, 201], [899, 900]]),
        (5, 90, [[0, 1], [3, 5]]),
        (100, 10, []),
    ):
        step = {"cache_length": length, "drafter_rows": ranges}
        assert view.evaluate("([step, most]) => rowsSeen(step, most)", [step, most]) == pytest.approx(
            shares(length, ranges, most)
        )
    assert view.evaluate("rowsSeen({ cache_length: 9 }, 3)") is None


def test_a_long_context_is_drawn_by_bins_and_said(view):
    trace = make_trace(3)
    for number, step in enumerate(trace["steps"]):
        step["cache_length"] += LENGTH
        if number == 1:
            step["drafter_rows"] = [[row, row + 1] for row in range(0, LENGTH, 4)]
    view.evaluate("(text) => view.receive(text)", message_trace(1, "seen", trace))
    view.locator(".mdv-area-kv").scroll_into_view_if_needed()  # it is drawn while it is in sight
    view.wait_for_selector(".mdv-kvcell")
    assert view.locator(".mdv-kvprefix .seen").count() == 0
    view.evaluate("view.store.goto(1)")
    view.wait_for_selector(".mdv-area-kv .mdv-kvprefix .seen")
    assert view.locator(".mdv-area-kv .mdv-kvprefix .seen").count() <= 2 * 90  # during the step and after it
    words = f"{LENGTH // 4} committed rows of {trace['steps'][1]['cache_length']}"
    assert words in view.locator("[data-role=kv-caption]").inner_text()
    assert words in view.locator("[data-role=mask-caption]").inner_text()
    sent = view.evaluate("view.state.trace.steps[1].drafter_rows.length")
    assert sent == len(trace["steps"][1]["drafter_rows"])


def test_a_window_is_said_where_rows_lie_before_it(view):
    trace = make_trace(3)
    trace["model"] |= {"context": 24_000, "extend": "window", "window": 1024}
    trace["steps"][2]["cache_length"] += LENGTH
    length = trace["steps"][2]["cache_length"]
    view.evaluate("(text) => view.receive(text)", message_trace(1, "window", trace))
    view.locator(".mdv-area-kv").scroll_into_view_if_needed()
    assert "last 1024" not in view.locator("[data-role=mask-caption]").inner_text()
    view.evaluate("view.store.goto(2)")
    view.wait_for_function(
        f"document.querySelector('.mdv-kvprefix')?.textContent.includes('{length - 1023} … ')"
    )
    assert "1023 rows" in view.locator(".mdv-kvprefix").first.text_content()
    for caption in ("mask", "kv"):
        words = view.locator(f"[data-role={caption}-caption]").inner_text()
        assert "Every layer sees the last 1024 positions alone" in words
    assert "context 24000 in a window of 1024" in view.locator(".mdv").first.inner_text()
    command = view.evaluate("(trace) => asCommand(recipeOf(trace))", trace)
    assert "--context=24000 --extend=window" in command
