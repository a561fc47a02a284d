"""The page reads the compact form of a trace as Python does."""

from __future__ import annotations

import pytest
import tiny
from page_messages import step_messages
from view_trace import make_trace

from medusa_core.config import GenerationConfig
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.packed import packed, unpacked
from ui.components.decode_view import message_begin, message_end

pytestmark = pytest.mark.browser

SETTINGS = {
    "greedy": {"tree": "cartesian-4x2x2"},
    "typical": {"tree": "cartesian-4x2x2", "acceptance": "typical", "temperature": 0.7},
    "other shapes": {"method": "ngram"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_records_are_those_that_python_reads(script_page, engine, name):
    config = GenerationConfig.of(max_new_tokens=20, **SETTINGS[name])
    builder = TraceBuilder(engine, config, tiny.PROMPT)
    for step in engine.stream(tiny.PROMPT, config):
        builder.add(step)
    assert script_page.evaluate("unpackedTrace", builder.packed()) == builder.finish()


def test_a_trace_of_steps_that_differ_between_siblings(script_page):
    trace = make_trace(3)
    trace["steps"][1]["nodes"][2] |= {"entropy": 0.125, "threshold": None}
    assert script_page.evaluate("unpackedTrace", packed(trace)) == unpacked(packed(trace))


def test_steps_that_come_twice_or_before_their_time_are_left_out(script_page):
    trace = make_trace(5)
    begin, end, steps = message_begin(1, "r", trace), message_end(9, "r", trace), step_messages("r", trace)
    messages = [begin, steps[0], steps[0], steps[2], steps[1], *steps[1:], end]
    kept = script_page.evaluate(
        """(messages) => {
          const store = makeStore(() => {});
          messages.forEach((message) => receive(store, message));
          return [store.state.trace, store.state.packed];
        }""",
        messages,
    )
    assert [step["nodes"] for step in kept[0]["steps"]] == [step["nodes"] for step in trace["steps"]]
    assert unpacked(kept[1]) == {**trace, "steps": unpacked(packed(trace))["steps"]}
