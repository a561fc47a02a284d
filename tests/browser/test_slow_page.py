"""A slow page is not sent a long line of messages."""

from __future__ import annotations

import re

import pytest
from places import says, set_tokens

from ui.serving.update_stream import MOST_UNDRAWN, Acks

pytestmark = pytest.mark.browser

# A page that takes a quarter of a second for each picture, as on a busy machine.
SLOW_DRAWING = """() => {
  const until = (time) => { while (performance.now() < time); };
  const slow = () => { until(performance.now() + 250); requestAnimationFrame(slow); };
  requestAnimationFrame(slow);
}"""


@pytest.fixture
def under_way(monkeypatch):
    """How many messages were sent and not drawn, noted with each that is sent."""
    noted, label = [], Acks.labelled

    def counting(acks, message):
        noted.append((acks._sent + 1 - acks._drawn, message))
        return label(acks, message)

    monkeypatch.setattr(Acks, "labelled", counting)
    monkeypatch.setattr("ui.serving.update_stream.SILENT_SECONDS", 60)  # no more for a page that is only slow
    return noted


@pytest.mark.slow
def test_a_slow_page_gets_few_messages_and_every_step(private_address, open_page, under_way):
    page = open_page(private_address)
    page.wait_for_selector("#decode-view .mdv")
    says(page, "#model-line", "Medusa heads")
    page.locator("#decode-prompt textarea").fill("abcabc")
    set_tokens(page, 100)
    page.evaluate(SLOW_DRAWING)
    page.locator("#decode-run").click()
    says(page, "#decode-status", "tokens in")
    steps = int(re.search(r"in (\d+) steps", page.locator("#decode-status").inner_text())[1])
    assert steps > 30
    assert len(under_way) < steps / 2
    assert max(count for count, _ in under_way[:-1]) <= MOST_UNDRAWN  # the end waits for nobody
    says(page, "#decode-view .mdv-counter", f"/ {steps}")
