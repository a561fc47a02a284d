"""A slow page is not sent a long line of messages, and a run stays on screen while another tab is shown."""

from __future__ import annotations

import re

import pytest
from places import says, set_tokens, turn_to

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


@pytest.fixture
def page(private_address, open_page):
    page = open_page(private_address)
    page.wait_for_selector("#decode-view .mdv")
    says(page, "#model-line", "Medusa heads")
    page.locator("#decode-prompt textarea").fill("abcabc")
    set_tokens(page, 512)
    return page


def status_after(page, words):
    says(page, "#decode-status", words)
    return page.locator("#decode-status").inner_text()


@pytest.mark.slow
def test_a_slow_page_gets_few_messages_and_every_step(page, under_way):
    set_tokens(page, 100)
    page.evaluate(SLOW_DRAWING)
    page.locator("#decode-run").click()
    words = status_after(page, "tokens in")
    steps = int(re.search(r"in (\d+) steps", words)[1])
    assert steps > 30
    assert len(under_way) < steps / 2
    assert max(count for count, _ in under_way[:-1]) <= MOST_UNDRAWN  # the end waits for nobody
    says(page, "#decode-view .mdv-counter", f"/ {steps}")


@pytest.mark.slow
def test_a_run_stays_on_screen_when_another_tab_was_looked_at(page):
    set_tokens(page, 20)
    page.locator("#decode-run").click()
    status_after(page, "tokens in")
    turn_to(page, "Trees")
    turn_to(page, "Watch")
    assert page.locator("#decode-view .mdv-node").count() > 1
    assert "finished: token limit reached" in page.locator("#decode-view").inner_text()
