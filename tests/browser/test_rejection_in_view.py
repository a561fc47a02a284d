"""The view of a run judged by rejection sampling: its words, and no what-if that would draw anew."""

from __future__ import annotations

import pytest
import small_model
import tiny

from medusa_core.config import GenerationConfig
from medusa_core.replay.view import web_script
from medusa_core.trace.builder import TraceBuilder
from ui.components.decode_view import message_trace

pytestmark = pytest.mark.browser
CONFIG = GenerationConfig.of(
    method="draft_model", acceptance="rejection", temperature=0.9, draft_top_k=2, max_new_tokens=12
)


@pytest.fixture(scope="module")
def trace(engine):
    drafting = small_model.with_draft_model(engine)
    builder = TraceBuilder(drafting, CONFIG, tiny.PROMPT)
    for step in drafting.stream(tiny.PROMPT, CONFIG):
        builder.add(step)
    return builder.finish()


@pytest.fixture
def page(chromium, trace):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.set_content("<body><div id='host'></div></body>")
    page.add_script_tag(content=web_script())
    page.evaluate("window.view = mountDecodeView(document.getElementById('host'), DECODE_VIEW_STYLE)")
    page.evaluate("(text) => window.view.receive(text)", message_trace(0, "run", trace))
    page.wait_for_function("document.getElementById('host').textContent.includes('rejection sampling')")
    yield page
    page.close()


def test_the_view_tells_what_was_compared_and_whose_guess_it_was(page):
    page.locator(".mdv-node[data-node='1']").click()
    said = page.locator("#host").inner_text()
    assert "p/q" in said
    assert "The drafter draft model’s guess 1" in said
    assert "the draft model’s 1st token, its draw 1" in said


def test_a_rule_that_draws_is_not_applied_again(page):
    """What would have been drawn is in no trace: only rules that need no draw can re-judge a step."""
    settle = """(wanted) => settleWhatIf(
        {acceptance: "typical", temperature: 0.7, epsilon: 0.09, delta: 0.3}, wanted, true)"""
    own = {"temperature": 0.9, "epsilon": 0.09, "delta": 0.3}
    assert page.evaluate(settle, {**own, "acceptance": "rejection"}) is None
    assert page.evaluate(settle, {**own, "acceptance": "match"}) is None
    assert page.evaluate(settle, {**own, "acceptance": "typical"}) is not None
