"""What the browser computes of a trace, as Python does: compact form, verdicts, p at another temperature."""

from __future__ import annotations

import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from one_verdict import Case, cases
from page_messages import step_messages
from view_trace import make_trace

from medusa_core.acceptance.sampling import entropy, probabilities
from medusa_core.config import GenerationConfig
from medusa_core.trace.alternatives import TEMPERATURES
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.packed import packed, unpacked
from ui.records.messages import message_begin, message_end

pytestmark = pytest.mark.browser

SETTINGS = {
    "greedy": {"tree": "cartesian-4x2x2"},
    "typical": {"tree": "cartesian-4x2x2", "acceptance": "typical", "temperature": 0.7},
    "other shapes": {"method": "ngram"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_records_are_those_that_python_reads(script_page, engine, name):
    config = GenerationConfig.of(max_new_tokens=20, **SETTINGS[name])
    builder = tiny.recorded(engine, config)
    assert script_page.evaluate("unpackedTrace", builder.packed()) == builder.finish()


def test_a_trace_of_steps_that_differ_between_siblings(script_page):
    trace = make_trace(3)
    trace["steps"][1]["nodes"][2] |= {"entropy": 0.125, "threshold": None}
    assert script_page.evaluate("unpackedTrace", packed(trace)) == unpacked(packed(trace))


def test_steps_that_come_twice_or_before_their_time_are_left_out(script_page):
    trace = make_trace(5)
    begin, end, steps = message_begin("r", trace), message_end("r", trace), step_messages("r", trace)
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


# --- The page's greedy verdict accepts the nodes that the engine's does, also where tokens come twice.


def recorded(case: Case, shares: list[float]) -> dict:
    """A step as a trace has it; p of one token may differ between nodes by rounding."""
    nodes = [
        {"parent": parent if parent >= 0 else None, "token_id": token, "p": share}
        for parent, token, share in zip(case.parents, case.tokens, shares, strict=False)
    ]
    after = [{"node": node, "token_ids": [choice]} for node, choice in enumerate(case.choices)]
    return {"nodes": nodes, "after": after}


# Many trees in one call, since a call takes longer than a tree.
@given(found=st.lists(cases(), min_size=20, max_size=30), data=st.data())
@settings(max_examples=10)
def test_the_page_accepts_the_nodes_that_the_engine_accepts(script_page, found, data):
    shares = data.draw(st.lists(st.floats(0.4, 0.6), min_size=16, max_size=16))
    steps = [recorded(case, shares) for case in found]
    paths = script_page.evaluate("(steps) => steps.map((step) => greedyVerdict(step).path)", steps)
    assert paths == [case.path for case in found]


# --- p and entropy at a temperature that was not run: what the browser makes of the trace, and the logits.


BETWEEN = (0.05, 0.4, 0.6, 0.85, 1.15, 1.45, 1.9)
REHEATED = """([trace, from, wishes]) => wishes.map((to) => trace.steps.map((step) =>
  reheated(trace, step, from, to).nodes.slice(1).map((node) => [node.p, node.entropy])))"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_numbers_at_other_temperatures_are_those_of_the_logits(script_page, engine, temperature):
    config = GenerationConfig.of(
        acceptance="typical", temperature=temperature, tree="cartesian-4x2x2", max_new_tokens=20
    )
    builder, steps = TraceBuilder(engine, config, tiny.PROMPT), []
    for step in engine.stream(tiny.PROMPT, config):
        builder.add(step)
        steps.append(step)
    wishes = [*TEMPERATURES, *BETWEEN]
    found = script_page.evaluate(REHEATED, [builder.finish(), temperature or 1.0, wishes])
    for wish, by_step in zip(wishes, found, strict=True):
        most = 1e-2 if wish in TEMPERATURES else 0.03
        for step, nodes in zip(steps, by_step, strict=True):
            probs = probabilities(step.logits, wish)
            known = entropy(probs)
            for node, (p, h) in enumerate(nodes, start=1):
                parent = step.tree.parents[node]
                assert p == pytest.approx(float(probs[parent, step.tree.tokens[node]]), rel=most, abs=most)
                assert h == pytest.approx(float(known[parent]), abs=3 * most), (wish, node)
